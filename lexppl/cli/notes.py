"""What the reader should mind of a table, of a fit and of a posterior, in words."""

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from torch import Tensor

from lexppl.data import CategoricalColumn, DividedTable
from lexppl.data.columns import levels_in
from lexppl.evaluation.learned import BaseRateGain
from lexppl.inference import NotSettledWarning
from lexppl.inference.posterior.convergence import SamplerWarning
from lexppl.inference.training.collapse import ALL_OFF, ALL_ON, ONE_MASK
from lexppl.summary import counted
from lexppl.tabular.estimator_outputs import said_of_all
from lexppl.tabular.fit_plan import FitPlan

PENALTY_HALF_GROWN = 0.55
"""The share of a fit at which `lexppl.inference.annealed` has half the penalty in place."""

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        ALL_OFF: "no row keeps any feature: give a lower --penalty, or --k",
        ALL_ON: "every row keeps every feature: give a higher --penalty, or --k",
        ONE_MASK: (
            "every row keeps the same features: fine if the same ones matter everywhere; if you "
            "expect them to differ, give a larger --masks, more --epochs, or another --seed"
        ),
    }
)

NOTHING_LEARNED = (
    "no row keeps any feature, as should be where none says anything; if some do, more rows or a "
    "lower --penalty may show it"
)

MOST_UNDECIDED = 0.5
"""Of rows and features; above it masks have not settled."""


def learned_messages(
    gain: BaseRateGain, undecided: float | None, sampled: bool = False
) -> list[str]:
    """Lines where new rows do not show that anything was learned, or masks have not settled.

    Args:
        gain: of the explainer's predictions over the base rate.
        undecided: share of rows and features that are kept with a probability from .1 to .9; None
            where masks are not selections of a free size.
        sampled: whether weights were drawn from their posterior, which knows no epochs.

    Example:
        >>> learned_messages(BaseRateGain(0.2, 0.05, 100), 0.1)
        []
        >>> learned_messages(BaseRateGain(0.01, 0.05, 100), 0.1)[0][:63]
        'on held-out rows the explainer predicts no better than the base'
    """
    lines = []
    if not gain.shown:
        count = counted(gain.rows, "row")
        error = "" if math.isnan(gain.error) else f" ± {2 * gain.error:.3f}"
        lines.append(
            "on held-out rows the explainer predicts no better than the base rate "
            f"({gain.nats:+.3f}{error} nats a row, {count}): nothing shows that "
            "it has learned, and what it says of the features says nothing; give more rows"
            + ("" if sampled else " or more --epochs")
        )
    if undecided is not None and undecided > MOST_UNDECIDED:
        lines.append(
            f"masks have not settled: {undecided:.0%} of the rows' features are kept with a "
            "probability from .1 to .9; give more "
            + ("rows" if sampled else "--epochs")
            + ", or a higher --penalty"
        )
    return lines


def collapse_messages(
    found: list[str | None], one_mask_is_right: bool = False, learned: bool = True
) -> list[str]:
    """One line for each kind of collapse among the replicates, with what to try.

    Args:
        found: of each replicate the name of its collapse, or None.
        one_mask_is_right: whether one mask for every row is no alarm, as held-out rows are
            predicted as well by it as by all features.
        learned: whether held-out rows show that anything was learned.

    Example:
        >>> collapse_messages([None, None])
        []
        >>> collapse_messages(["all off", None])[0][:45]
        'collapse in 1 of 2 replicates (all off): no r'
    """
    lines = []
    for kind, advice in ADVICE.items():
        if kind == ONE_MASK and one_mask_is_right:
            continue
        count = sum(1 for one in found if one == kind)
        if count:
            which = "" if len(found) == 1 else f" in {count} of {len(found)} replicates"
            line = NOTHING_LEARNED if kind == ALL_OFF and not learned else advice
            lines.append(f"collapse{which} ({kind}): {line}")
    return lines


def behind_message(own: float | None, full: float | None, error: float) -> list[str]:
    """A line where the explainer predicts worse than a predictor of all features.

    Args:
        own, full: mean log-likelihood of held-out rows of either, in nats; None where not known.
        error: standard error of the explainer's over the rows.

    Example:
        >>> behind_message(-0.5, -0.48, 0.02), behind_message(None, -0.4, 0.02)
        ([], [])
        >>> behind_message(-0.6, -0.4, 0.02)[0][:62]
        'the explainer predicts worse than a predictor that sees every '
    """
    if own is None or full is None or not own < full - 2.0 * error:
        return []
    return [
        f"the explainer predicts worse than a predictor that sees every feature ({own:.3f} against "
        f"{full:.3f} nats a held-out row, more than two standard errors): it leaves out what "
        "matters; give a lower --penalty, more --epochs or more rows, or --imputer copula where "
        "features depend on each other"
    ]


def early_message(best_epochs: Sequence[int], epochs: int, penalised: bool) -> list[str]:
    """A line if replicates keep a state from before the penalty had half its weight.

    The validation loss then rose while the penalty grew: the predictor overfits, and the state
    that is kept has not yet been made to leave features out.

    Args:
        best_epochs: of each replicate, from 0.
        epochs: how many were run.
        penalised: whether there is a penalty.

    Example:
        >>> early_message([10, 190], 200, True)[0][:50]
        'the best epoch of 1 of 2 replicates came before th'
        >>> early_message([150, 190], 200, True)
        []
    """
    early = sum(1 for best in best_epochs if (best + 1) / epochs < PENALTY_HALF_GROWN)
    if not penalised or not early:
        return []
    which = "" if len(best_epochs) == 1 else f" of {early} of {len(best_epochs)} replicates"
    return [
        f"the best epoch{which} came before the penalty had half its weight: the fit overfits, and "
        "more features are kept than need be; give --k, a higher --penalty or more rows"
    ]


def path_message(penalties: Sequence[float], chosen: int) -> list[str]:
    """A line if the chosen λ is an end of its path, beyond which nothing was tried.

    Args:
        penalties: of the path, rising, in nats.
        chosen: the place of the chosen one.

    Example:
        >>> path_message([0.01, 0.02, 0.04], 1)
        []
        >>> path_message([0.01, 0.02, 0.04], 0)[0][:70]
        'the penalty chosen, 0.01 nats, is the smallest that was tried: a small'
    """
    if 0 < chosen < len(penalties) - 1:
        return []
    end, other, more = (
        ("smallest", "smaller", "more") if chosen == 0 else ("largest", "larger", "fewer")
    )
    return [
        f"the penalty chosen, {penalties[chosen]:.3g} nats, is the {end} that was tried: a {other} "
        f"one, which keeps {more} features, may predict as well or better; try it with --penalty"
    ]


def what_is_fitted(plan: FitPlan) -> str:
    """What begins, in a line."""
    if plan.posterior is not None and plan.posterior.inference is not None:
        return f"sampling the explainer: {plan.posterior.words}"
    first = "for all penalties at once, " if plan.penalties is not None else ""
    by = "" if plan.posterior is None else f", {plan.posterior.words}"
    return f"fitting the explainer, {first}{counted(plan.replicates, 'replicate')}{by}"


@contextlib.contextmanager
def warnings_of_posterior() -> Iterator[list[str]]:
    """Warnings of chains and of guides inside the block, which are for the report as well: they are
    kept, and others are shown as they come."""
    kept: list[str] = []
    with warnings.catch_warnings():
        shown = warnings.showwarning
        for category in (SamplerWarning, NotSettledWarning):
            warnings.simplefilter("always", category)

        def keep(message: Any, category: Any, *where: Any) -> None:
            if issubclass(category, SamplerWarning | NotSettledWarning):
                kept.append(" ".join(str(message).split()))
            else:
                shown(message, category, *where)

        setattr(warnings, "showwarning", keep)  # noqa: B010 - of fewer named arguments
        yield kept


def table_notes(source: DividedTable, outputs: Tensor | None) -> list[str]:
    """One line for each kind of thing.

    Args:
        source: the table.
        outputs: what a black box says of every row, or None.
    """
    data = source.data
    found = [_missing(source), *_pooled(source)]
    if outputs is not None:
        bought = outputs.isfinite().reshape(len(outputs), -1).all(1)
        found.append(said_of_all(outputs[bought], data.class_names))
        if left_out := int((~bought).sum()):
            found.append(
                f"--max-calls: the black box was asked of {counted(len(outputs) - left_out, 'row')}"
                f" of {len(outputs):,}, at random; the others are neither fitted on nor judged"
            )
    return [note for note in found if note is not None]


def _missing(source: DividedTable) -> str | None:
    encoding = source.data.encoding
    if encoding is None:
        return None
    markers = sorted({place for place in encoding.markers if place >= 0})
    if not markers:
        return None
    shares = source.test.x[:, markers].double().mean(0).tolist()
    names = [encoding.entry_names[encoding.groups[place]] for place in markers]
    each = ", ".join(f"{name!r} in {share:.0%}" for name, share in zip(names, shares, strict=True))
    return (
        f"missing values of the held-out rows ({each}) are hidden from the explainer: such a "
        "feature counts as not kept in its row, and gains nothing there"
    )


def _pooled(source: DividedTable) -> list[str]:
    encoding = source.data.encoding
    notes = []
    for column in () if encoding is None else encoding.columns:
        if isinstance(column, CategoricalColumn) and column.pooled is not None:
            rare = set(levels_in(source.table[column.name])) - set(column.levels)
            notes.append(
                f"{len(rare)} rare levels of {column.name!r} are pooled as {column.pooled!r}"
            )
    return notes
