"""Masks with a certificate: by draws of what they hide, or by calibration rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from scipy.stats import binom
from torch import Tensor

from lexppl.argument_checks import finite_float, fraction, int_at_least, int_between
from lexppl.distributions.sequential_mask import SequentialMask
from lexppl.evaluation.evalx import EvalX
from lexppl.explanation.names import entry_names, named_rows
from lexppl.explanation.program_sites import sites_of
from lexppl.explanation.sampler import draws as draws_of
from lexppl.explanation.sampler import read_prediction
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.predictive import drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult

PILOT, TEST = 0.15, 0.375  # Shares of a row's draws: of all that choose sizes, and of a test of one
STEPS = 20  # Sizes that lie between none and all where there are more entries: tests are few
THRESHOLDS = 1 - np.geomspace(1e-5, 1.0, 200)  # Of confidence, chosen before any row is seen

Ints = NDArray[np.int64]


def certified_masks(
    result: FitResult,
    x: Any,
    *,
    alpha: float = 0.1,
    level: float = 0.9,
    within: float | None = None,
    draws: int = 400,
    seed: int = 0,
) -> xr.Dataset:
    r"""Small masks along each row's order that leave the prediction as it is, with a certificate:

    .. math:: P\big(a(x, S) ≥ 1 - α\big) ≥ \text{level}, \qquad
              a(x, S) = P_{x̃ ∼ p(x̃ | x, S)}\big(\operatorname{argmax}_c p(c | x̃)
              = \operatorname{argmax}_c p(c | x)\big),

    over the draws of the test, for each row and replicate. Of a response the event is
    :math:`|E[y | x̃] - E[y | x]| ≤` `within`. S keeps the entries that a rising λ lets go last
    (:meth:`FitResult.order`). Sizes are tested from larger to smaller ones, each by the exact
    sequential binomial test of :func:`sequential_test` at 1 − level, up to the first that fails. A
    size is certified wrongly only if the first of the tested sizes with a < 1 − α passes its one
    test, so that no correction is needed; draws of their own, in a bisection, choose where to
    start. It is a statement about the imputer's hidden values (:func:`calibrated_stop` is about
    those of new rows), for a row chosen beforehand.

    Args:
        result: a fit for a range of λ.
        x: rows, `(N, *event)`.
        alpha: α, the share of draws that may change the prediction.
        level: of confidence.
        within: how far the mean of a response may move, in the units of y; None of labels.
        draws: the most draws of hidden values, each a call of the predictor, of a row.

    Returns:
        By chain (replicate) and row: `mask`, also by feature; `size`, how many it keeps; `bound`,
        the certified lower bound of a, 1 − α, or 0 where not even all entries pass, as may be where
        missing values are drawn; `calls`, the draws that were taken.

    Raises:
        ValueError: α or level outside (0, 1), a fit of one λ, too few draws for one test, `within`
            left out of a response or stated for labels, rows unlike those of the fit, hidden values
            that are not drawn.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
        >>> every = lex(3, classes=2, penalty=(0.005, 0.5), hidden=(8,), predictor_hidden=(8,))
        >>> result = fit(every, (x, (x[:, 1] > 0).long()), epochs=40, batch_size=50,
        ...     valid=None, learning_rate=1e-2, progress=False)
        >>> found = certified_masks(result, x[:100])
        >>> bool(found["size"].mean() < 2), int(found.calls.max()) <= 400
        (True, True)
    """
    alpha, level = fraction("alpha", alpha), fraction("level", level)
    count, seed = int_at_least("draws", draws), int_at_least("seed", seed, 0)
    rows = named_rows(result, x, None).x
    keep_parameters_local(*result.models)
    with drawing(seed, rows.device):
        response = sites_of(result.model, rows[:1]).response
    labels = None if response is None else response.labels
    if (within is None) != (labels is not None):
        kind = "a number: give within=" if labels is None else "one of labels: leave within= out"
        raise ValueError(f"within is {within!r}, and the prediction of y is {kind}")
    within = None if within is None else finite_float("within", within, above=0.0)
    test = sequential_test(1 - alpha, 1 - level, int(TEST * count))
    if all(failures < 0 for _, failures in test):
        least = math.ceil(math.log(1 - level) / math.log(1 - alpha) / TEST)
        raise ValueError(
            f"draws={count} are too few: with α = {alpha:g} and level {level:g} a row takes at "
            f"least {least}"
        )
    place = result.order(rows).flip(-1).argsort(-1)  # 0 of the entry that stays longest
    _refuse_undrawn(result, rows[: len(rows) and 1], place.shape[1], seed)
    of_chains, generator = [], torch.Generator().manual_seed(seed)
    for number in range(result.replicates):
        alone, blocks = result.subset([number]), []
        with drawing(seed, rows.device):
            for block in row_chunks(len(rows), rows_at_once(rows, test[-1][0])):
                arguments = alone, rows[block], place[block], within, alpha, test, count, generator
                blocks.append(_certified(*arguments))
        of_chains.append(np.concatenate(blocks, -1))
    size, certified, calls = np.stack(of_chains, 1)
    kept_entries = (place.cpu().numpy() < size[..., None]).astype(np.int8)
    of_rows = {"size": size, "bound": (1 - alpha) * certified, "calls": calls}
    by_row = {name: (("chain", "row"), values) for name, values in of_rows.items()}
    names = [str(name) for name in entry_names(result, place.shape[1], None)]
    return xr.Dataset(
        {"mask": (("chain", "row", "feature"), kept_entries), **by_row},
        {"chain": np.arange(len(size)), "row": np.arange(len(rows)), "feature": names},
        {"alpha": alpha, "level": level},
    )


def _refuse_undrawn(result: FitResult, row: Tensor, entries: int, seed: int) -> None:
    """Refuse a program that draws no hidden values, of which any share of draws is 0 or 1."""
    masks = torch.zeros((20, len(row), entries), dtype=row.dtype, device=row.device)
    read = {"prediction": read_prediction}
    drawn = draws_of(result, row, masks=masks, read=read, seed=seed)["prediction"].values
    if np.ptp(drawn, 1).max(initial=0.0) == 0.0:
        name = type(getattr(result.model, "imputer", result.model)).__name__
        raise ValueError(
            f"with no entry kept all draws predict the same, as where {name} or boosted trees of "
            "kept values draw no hidden values: a certificate is about these; fit a network with "
            "an imputer that draws them"
        )


def sequential_test(share: float, error: float, most: int) -> list[tuple[int, int]]:
    """An exact sequential test of H: a < `share`, a the probability of a success.

    After n of up to `most` draws H is rejected where at most c fail. Each c is the largest with

        P(rejected after n draws or before | a = share) ≤ error √(n / most),

    by the recursion over the failures of draws that go on, so that H is rejected with a probability
    of at most `error` where it is true: fewer successes only make a rejection rarer.

    Returns:
        (n, c) of the looks, n doubling; c = −1 where none is rejected.

    Source: Jennison and Turnbull (2000), Group sequential methods, ch. 12; the spending of errors
        is that of Lan and DeMets (1983), Biometrika 70.

    Example:
        >>> sequential_test(0.9, 0.1, 150)
        [(37, 0), (75, 3), (150, 9)]
    """
    least, looks = math.log(error) / math.log(share), [most]
    while looks[0] // 2 > 1.25 * least:
        looks.insert(0, looks[0] // 2)
    # By failures, the probability that the test goes on with so many.
    goes_on, spent, done, test = np.ones(1), 0.0, 0, []
    for n in looks:
        goes_on = np.convolve(goes_on, binom.pmf(np.arange(n - done + 1), n - done, 1 - share))
        room = error * math.sqrt(n / most) - spent
        most_failures = int(np.searchsorted(goes_on.cumsum(), room, side="right")) - 1
        spent += goes_on[: most_failures + 1].sum()
        goes_on[: most_failures + 1] = 0.0
        test.append((n, most_failures))
        done = n
    return test


def _certified(
    result: FitResult,
    x: Tensor,
    place: Tensor,
    within: float | None,
    alpha: float,
    test: Sequence[tuple[int, int]],
    count: int,
    generator: torch.Generator,
) -> Ints:
    """Sizes of one replicate's masks, whether they are certified, and draws taken, `(3, N)`."""
    entries, every = place.shape[1], np.arange(len(x))

    def predicted(rows: Ints, sizes: Ints, masks: int) -> NDArray[Any]:
        """Predictions `(masks, n, …)` of rows by the last entries of the order, by new draws."""
        at = torch.from_numpy(rows).to(x.device)
        mask = (place[at] < torch.from_numpy(sizes).to(x.device)[:, None]).to(x.dtype)
        how: Any = {"masks": mask.expand(masks, -1, -1), "read": {"prediction": read_prediction}}
        seed = int(torch.randint(2**62, (), generator=generator))
        values: NDArray[Any] = draws_of(result, x[at], seed=seed, **how)["prediction"].values[0]
        return values

    def changed(rows: Ints, sizes: Ints, masks: int) -> Ints:
        """How many of the draws change the prediction of each row."""
        values, of_all = predicted(rows, sizes, masks), reference[rows]
        if within is None:
            return (values.argmax(-1) != of_all.argmax(-1)).sum(0)
        far = np.abs(values - of_all) > within
        return far.reshape(masks, len(rows), -1).any(-1).sum(0)

    pilot = max(2, int(PILOT * count) // (math.ceil(math.log2(entries + 1)) + 1))
    complete = predicted(every, np.full(len(x), entries), pilot)
    reference = complete.mean(0)
    # With every entry kept nothing is hidden; what is drawn all the same must pass its test.
    draws_all = ~np.isclose(complete, reference).reshape(pilot, len(x), -1).all((0, 2))
    calls, low, high = np.full(len(x), pilot), np.full(len(x), -1), np.full(len(x), entries)
    while len(rows := np.flatnonzero(high - low > 1)):
        middle = (low[rows] + high[rows]) // 2
        steady = changed(rows, middle, pilot) <= alpha / 3 * pilot
        high[rows[steady]], low[rows[~steady]] = middle[steady], middle[~steady]
        calls[rows] += pilot
    step = 1 + (entries - 1) // STEPS
    first = np.minimum(high + 2 * step, entries - 1)
    size, tested = np.full(len(x), entries), np.where(draws_all, entries, first)
    certified, lost = ~draws_all, max(failures for _, failures in test)
    rows = every
    while len(rows):
        failures, done = np.zeros(len(x), int), 0
        passed, open_rows = np.zeros(len(x), bool), rows
        for total, most_failures in test:
            if not len(open_rows):
                break
            failures[open_rows] += changed(open_rows, tested[open_rows], total - done)
            calls[open_rows] += total - done
            passed[open_rows] = failures[open_rows] <= most_failures
            going = ~passed[open_rows] & (failures[open_rows] <= lost)
            open_rows, done = open_rows[going], total
        rows = rows[passed[rows]]
        size[rows], certified[rows] = tested[rows], True
        tested[rows] = np.where(tested[rows] == entries, first[rows], tested[rows] - step)
        rows = rows[(tested[rows] >= 0) & (calls[rows] + test[-1][0] <= count)]
    return np.stack([size, certified.astype(int), calls])


@dataclass(frozen=True, eq=False)
class CalibratedStop:
    """A threshold of confidence at which masks stop growing: see :func:`calibrated_stop`.

    Args:
        order: entries from the first that is kept on, or a fit that chooses them step by step.
        predictor: of labels from kept values.
        threshold: τ.
        rows, errors: of the calibration, and how many of these rows are predicted otherwise at τ.
        imputations, seed: of hidden values, where the predictor draws them.
    """

    order: FitResult | tuple[int, ...]
    predictor: EvalX
    threshold: float
    rows: int
    errors: int
    imputations: int
    seed: int

    def masks(self, x: Any) -> xr.Dataset:
        """Masks of new rows, by row: `mask`, also by feature; `size`, how many it keeps; `label`,
        what is predicted from them, and its probability, `confidence`.

        Raises:
            ValueError, TypeError: rows unlike those of the fit.
        """
        result = self.predictor.result
        place, confidence, labels = self.along(named_rows(result, x, None).x)
        size, at = _stops(confidence, self.threshold), np.arange(len(place))
        names = entry_names(result, self.predictor.entries, None)
        of_rows = {"size": size, "label": labels[size, at], "confidence": confidence[size, at]}
        mask = (place < size[:, None]).astype(np.int8)
        return xr.Dataset(
            {"mask": (("row", "feature"), mask)} | {n: ("row", v) for n, v in of_rows.items()},
            {"row": at, "feature": [str(name) for name in names]},
        )

    def along(self, x: Tensor) -> tuple[Ints, NDArray[Any], Ints]:
        """The step from which on each entry is kept, `(N, G)`, and at the steps 0 … T the largest
        probability and its label, `(T + 1, N)`."""
        if isinstance(self.order, FitResult):
            read = {"order": partial(_likeliest_order, self.order)}
            order = torch.as_tensor(
                draws_of(self.order, x, read=read, draws=1)["order"].values[0, 0]
            )
        else:
            order = torch.tensor(self.order).expand(len(x), -1)
        steps = order.shape[1]
        never = torch.full((len(x), self.predictor.entries), steps)
        place, parts = never.scatter(1, order, torch.arange(steps).expand_as(order)), []
        for rows in row_chunks(len(x), rows_at_once(x, (steps + 1) * self.imputations)):
            masks = (place[rows] < torch.arange(steps + 1)[:, None, None]).to(x)
            p = self.predictor.predict(x[rows], masks, imputations=self.imputations, seed=self.seed)
            parts.append(p.cpu().numpy())
        predicted = np.concatenate(parts, 1)
        return place.numpy(), predicted.max(-1), predicted.argmax(-1)


def calibrated_stop(
    order: FitResult | Sequence[int],
    x: Any,
    y: Any,
    *,
    predictor: EvalX | FitResult | None = None,
    epsilon: float = 0.1,
    delta: float = 0.1,
    by_class: bool = False,
    imputations: int = 1,
    seed: int = 0,
) -> CalibratedStop:
    r"""A threshold at which masks stop growing, with few predictions other than y:

    .. math:: P\big( P(\hat y(x_S) ≠ y) ≤ ε \big) ≥ 1 - δ, \qquad
              S = \{j_1 … j_t\} \text{ with the first } t \text{ at which }
              \max_c p(c | x_S) ≥ τ,

    inside over new rows of the distribution that the calibration rows are from, and outside over
    these. Hidden values are those of the rows: no imputer of them is believed. The last t stops
    whatever its confidence.

    Thresholds fall from the surest one on while the binomial p-value `P(Bin(n, ε) ≤ errors)` is at
    most δ, up to the first that fails, a sequence fixed before: of thresholds with a risk above ε
    only the first is tested wrongly, so that no correction is needed (Learn then Test). `by_class`
    has the risk at most ε among the rows of each predicted label: the p-value is the largest of the
    labels'.

    That S is chosen by kept values alone makes the risk one about hidden values too: redrawn given
    x_S, they leave S and the prediction as they are. A choice that reads hidden values, such as
    LEX's, has no such meaning, and is refused.

    Args:
        order: the entries of all rows, `(G,)`, the first to be kept first, such as
            `feature_importances_.argsort()[::-1]`; or a fit of a law that reads kept values alone
            (:class:`~lexppl.distributions.SequentialMask`), as of :func:`lexppl.systems.suwr`: then
            the likeliest next entry is kept.
        x, y: calibration rows, which neither order nor predictor has learned from, and their labels
            `(N,)`: observed ones, or those that a model predicts from all of x, which are then
            promised.
        predictor: of y from a part of x, as of :func:`fit_evalx`; the fit of the order if None.
        epsilon, delta: ε and δ.
        by_class: for each predicted label.
        imputations: of hidden values, over which a predictor that draws them averages, such as the
            fit of an explainer.

    Raises:
        ValueError: an order that reads x, ε or δ outside (0, 1), too few rows, more errors than ε
            allows with nearly every entry kept, a response that is no label.

    Source: Angelopoulos, Bates, Candès, Jordan, Lei (2025), "Learn then test: calibrating
        predictive algorithms to achieve risk control", Annals of Applied Statistics 19.

    Example:
        >>> from lexppl.evaluation import fit_evalx
        >>> x = torch.randn(900, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> judge = fit_evalx((x[:400], y[:400]), hidden=(8,), epochs=20, batch_size=50,
        ...     learning_rate=1e-2, progress=False)
        >>> stop = calibrated_stop([0, 1, 2], x[400:700], y[400:700], predictor=judge)
        >>> bool((stop.masks(x[700:]).label.values == y[700:].numpy()).mean() > 0.8)
        True
    """
    epsilon, delta = fraction("epsilon", epsilon), fraction("delta", delta)
    fitted: Any = order if predictor is None else getattr(predictor, "result", predictor)
    if not isinstance(fitted, FitResult):
        raise TypeError("give predictor=, as fit_evalx's or a fit, beside an order of entries")
    known = named_rows(fitted, x, y)
    keep_parameters_local(fitted.model)
    with drawing(seed, known.x.device):
        sites = sites_of(fitted.model, known.x[:1])
    known.check_response(sites.response, lambda: None)
    levels = None if sites.response is None else sites.response.labels
    if levels is None or known.y is None or known.y.dim() != 1:
        raise ValueError("y must hold labels (N,), of a predictor of labels: errors are counted")
    entries = sites.masks[0].entries
    if isinstance(order, FitResult):
        order = order.subset([order.best])
    chosen = order if isinstance(order, FitResult) else _checked(order, entries)
    judge = predictor if isinstance(predictor, EvalX) else EvalX(fitted, entries)
    stop = CalibratedStop(chosen, judge, 1.0, len(known), 0, imputations, seed)
    _, confidence, labels = stop.along(known.x)
    at, of_y = np.arange(len(known)), known.y.cpu().numpy()
    accepted: CalibratedStop | None = None
    for threshold in THRESHOLDS:
        size = _stops(confidence, threshold)
        predicted, wrong = labels[size, at], labels[size, at] != of_y
        groups = np.arange(len(levels))[:, None] == predicted if by_class else at[None] >= 0
        errors, counts = (groups & wrong).sum(1), groups.sum(1)
        if (binom.cdf(errors, counts, epsilon) > delta).any():
            break
        accepted = replace(stop, threshold=float(threshold), errors=int(wrong.sum()))
    if accepted is None:
        _refuse(errors, counts, levels if by_class else None, epsilon, delta)
    return accepted


def _checked(order: Sequence[int], entries: int) -> tuple[int, ...]:
    """An order of entries for all rows."""
    values = np.asarray(order)
    if values.ndim != 1:
        raise ValueError(
            f"order has shape {values.shape}, an order for each row as of FitResult.order, which "
            "reads hidden values, so that the risk would not be one about them: give one order for "
            "all rows, (G,), or a fit of suwr"
        )
    places = tuple(int_between("order", entry, 0, entries - 1) for entry in values.tolist())
    if not places or len(set(places)) < len(places):
        raise ValueError(f"order must be of different entries, at least one; it is {list(places)}")
    return places


def _refuse(
    errors: Ints, counts: Ints, levels: Sequence[int] | None, epsilon: float, delta: float
) -> NoReturn:
    """Say why not even the surest threshold is accepted."""
    least, few = math.ceil(math.log(delta) / math.log1p(-epsilon)), int(counts.argmin())
    aim = f"ε = {epsilon:g} at δ = {delta:g}"
    if counts[few] < least:
        what = "x has" if levels is None else f"label {levels[few]} is predicted in"
        raise ValueError(
            f"{what} {counts[few]} calibration rows, too few: without any error {aim} takes at "
            f"least {least}, log δ / log(1 − ε)"
        )
    most = int((errors / counts).argmax())
    raise ValueError(
        f"with nearly every entry kept {errors[most]} of {counts[most]} rows are predicted "
        f"otherwise than y, too many for {aim}: give a larger ε, more rows or a better predictor"
    )


def _likeliest_order(fit: FitResult, run: ParticleTrace) -> Tensor:
    """The order of a law that reads kept values alone, `(1, B, T)`."""
    laws = (site.distribution for site in run.mask_sites)
    law = next((law for law in laws if isinstance(law, SequentialMask)), None)
    context = None if law is None else law.context
    alike = context is None or bool((context == context.reshape(-1, context.shape[-1])[0]).all())
    if law is None or law.start is not None or not alike:
        name = type(getattr(fit.model, "selector", fit.model)).__name__
        raise ValueError(
            f"{name} chooses masks by more of x than it keeps, hidden values too, so that a risk "
            "counted on calibration rows is not one about hidden values: give one order for all "
            "rows, or a fit of suwr"
        )
    return law.likeliest_order()


def _stops(confidence: NDArray[Any], threshold: float) -> Ints:
    """The first step whose confidence `(T + 1, N)` is at least the threshold, or the last."""
    enough = confidence >= threshold
    enough[-1] = True
    stops: Ints = enough.argmax(0)
    return stops
