"""FitResult: the fitted models and the history of their training."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import refuse_not_finite
from lexppl.inference.batches import refuse_single_row
from lexppl.inference.objective.objective import Objective
from lexppl.inference.objective.program import row_marginals
from lexppl.inference.posterior.global_draws import (
    DrawnParameters,
    SampledGuide,
    SamplerRecord,
    stacked_parameters,
)
from lexppl.inference.predictive import FittedProgram, drawing
from lexppl.inference.replicates import replicate_hyperparameters
from lexppl.inference.training.rows import (
    check_alike,
    labelled,
    likelihood_of,
    refuse_other_scale,
    refuse_responses,
    refuse_unlike,
)
from lexppl.inference.training.settings import CompiledSteps
from lexppl.summary import Summarised, Summary, counted, in_range, parts_of, short, some_of
from lexppl.threads import ONE_THREAD


@contextmanager
def with_penalty(models: Sequence[Any], penalty: float) -> Iterator[None]:
    """Programs whose selectors for a range of λ have one of them inside; no copies."""
    selectors = [selector for model in models for selector in conditioned(model)]
    states = [(s, s.penalty, s.checked(penalty)) for s in selectors]
    try:
        for selector, _, chosen in states:
            selector.penalty = chosen
        yield
    finally:
        for selector, before, _ in states:
            selector.penalty = before


def conditioned(model: Any) -> list[Any]:
    """The selectors of a program that are fitted for a range of λ."""
    parts = model.modules() if isinstance(model, nn.Module) else ()
    selectors = [part for part in parts if hasattr(part, "row_penalties")]
    if not selectors:
        raise ValueError(
            "a λ is chosen among those of one fit, and this program was fitted for one alone: give "
            "the system a range, as lex(…, penalty=(0.005, 0.16))"
        )
    return selectors


def _kept(program: FittedProgram, x: Tensor) -> Tensor:
    """E[z | x] of a program's first site of masks, or the mean of its draws, `(N, G)`."""
    means = []
    for run, _ in program.runs((x,)):
        site = next(site for site in run.mask_sites if site.distribution.event_dim == 1)
        mean = row_marginals(site)
        means.append(torch.as_tensor(site.value).mean(-3) if mean is None else mean)
    return torch.stack(means).mean(0)


BY_REPLICATE = (
    *("models", "guides", "modules"),
    *("best_epoch", "best_valid", "collapse", "skipped_steps"),
)
ORDER_PENALTIES = 17
FEW_STEPS = 100
"""With fewer, a fit is reported as short: of tables of 1,000 rows more than half of the features
were kept with a probability from .1 to .9 after 96 steps, and none was settled after 48."""


@dataclass
class History:
    """The course of a fit, one row an epoch and one column a replicate.

    `train` is the mean loss of the epoch's batches under the objective as it stood (schedules and
    all), `valid` the loss of the validation rows under the final objective; both in nats a row.
    """

    train: np.ndarray
    valid: np.ndarray
    stage: np.ndarray
    seconds: np.ndarray

    def __len__(self) -> int:
        return len(self.train)


@dataclass(repr=False)
class FitResult(Summarised):
    """Fitted models, one a replicate, each at its best epoch.

    Attributes:
        models: the programs of the last stage's first term, in evaluation mode.
        guides: their guides, or None.
        objective: the last stage's objective at its end; None where a file has none.
        history: the course of the fit.
        best_epoch: `(R,)`, the epoch whose state each replicate has, from 0.
        best_valid: `(R,)`, its validation loss in nats a row (NaN without validation rows).
        collapse: for each replicate the name of its collapse, or None.
        interrupted: whether the fit was ended by Ctrl-C or a callback.
        event_shape: shape of a row of x.
        labels: the labels seen in training, or None where y is not one of labels.
        entry_names, feature_names, class_names: of the G mask entries, the D columns of x and the
            labels, where the training data had them.
        seed: the seed.
        row_weights: "dirichlet" of random weights by replicate, "given" of the user's, else None.
        rows: how many rows were learned from and held out, or None where that is not known.
        steps: of the optimizer, in all; None of rows of a loader.
        modules: all modules of all terms, for each replicate.
        sampler: how global latents were sampled: then `models` are one program, C times, and
            guide c gives the draws of chain c; else None.
        skipped_steps: `(R,)`, steps that moved nothing, as loss or gradient was not finite.
        ended: why such steps ended the fit early, else None.
        compiled: how the steps were computed where `TrainingOptions(compile=…)` asked for graphs.
        unit_pixels: whether x were images with all pixels in [0, 1]; others are then refused.
    """

    models: list[Any]
    guides: list[Any]
    objective: Objective | None
    history: History
    best_epoch: np.ndarray
    best_valid: np.ndarray
    collapse: list[str | None]
    interrupted: bool
    event_shape: tuple[int, ...]
    labels: tuple[int, ...] | None
    seed: int
    entry_names: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    row_weights: str | None = None
    rows: tuple[int, int] | None = None
    steps: int | None = None
    modules: list[nn.Module] = field(default_factory=list, repr=False)
    sampler: SamplerRecord | None = field(default=None, repr=False)
    compiled: CompiledSteps | None = None
    skipped_steps: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=int))
    ended: str | None = None
    unit_pixels: bool = False

    @cached_property
    def kept_between_calls(self) -> dict[Any, Any]:
        """What calls on the fit, and on each subset, keep for the next; of no copy or file."""
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "kept_between_calls"}

    def __post_init__(self) -> None:
        if not len(self.skipped_steps):
            self.skipped_steps = np.zeros(len(self.models), dtype=int)

    @property
    def model(self) -> Any:
        """The fitted program; of several replicates the one with the best validation loss."""
        return self.models[self.best]

    @property
    def best(self) -> int:
        """Index of the replicate with the best validation loss."""
        valid = np.where(np.isnan(self.best_valid), np.inf, self.best_valid)
        return int(valid.argmin())

    @property
    def replicates(self) -> int:
        """Number of replicates, R."""
        return len(self.models)

    def summarised(self) -> Summary:
        """What was fitted to what, how long, and what came of it."""
        model = type(self.models[0]).__name__
        sampler = self.sampler
        features = " × ".join(map(str, self.event_shape))
        names = "" if self.feature_names is None else f": {some_of(map(short, self.feature_names))}"
        entries = ""
        if self.entry_names not in (None, self.feature_names):
            entries = f"; {counted(len(self.entry_names or ()), 'mask entry', 'mask entries')}"
        losses = self.best_valid[~np.isnan(self.best_valid)].tolist()
        lines = {
            "parts": ", ".join(f"{n} {p}" for n, p in parts_of(self.models[0]).items()),
            "guide": self._guide_line(),
            "chains": None if sampler is None else sampler.summary,
            "rows": self._rows_line(),
            "x": f"{features} features{names}{entries}",
            "y": self._y_line(),
            "bound": None if self.objective is None else self.objective.summary,
            "epochs": self._epochs_line() if sampler is None else None,
            "held-out loss": f"{in_range(losses)} nats a row" if losses else None,
            "warnings": "; ".join(self._warnings()),
            "steps": None if self.compiled is None else self.compiled.summary,
        }
        count = counted(self.replicates, "replicate")
        if sampler is not None:
            noun = "chain" if sampler.are_chains else "set"
            of_each = counted(self.guides[0].draws, "draw")
            count = f"{sampler.name}, {counted(self.replicates, noun)} of {of_each}"
        return Summary(f"FitResult: {model}, {count}, seed {self.seed}", lines)

    def _guide_line(self) -> str | None:
        guide = self.guides[0]
        if self.sampler is None:
            return None if guide is None else type(guide).__name__
        sites = {name: values[0].numel() for name, values in guide.sites.items()}
        return f"draws of {counted(sum(sites.values()), 'number')}: {some_of(sites)}"

    def _rows_line(self) -> str | None:
        weighted = {None: "", "given": ", weighted"}
        words = weighted.get(self.row_weights, f", {self.row_weights} weights in each replicate")
        if self.rows is None:
            return words.removeprefix(", ") or None
        learned, held_out = self.rows
        if self.sampler is not None:
            return f"{learned:,} conditioned on{words}"
        judged = f"{held_out:,} held out" if held_out else "none held out"
        return f"{learned:,} to learn from, {judged}{words}"

    def _y_line(self) -> str:
        if self.class_names is not None:
            return f"{len(self.class_names)} classes: {some_of(map(short, self.class_names))}"
        if self.labels is not None:
            return f"{len(self.labels)} labels: {some_of(self.labels)}"
        likelihood = likelihood_of(self.models[0])
        if likelihood is None:
            return "responses, or probabilities of labels"
        discrete = getattr(likelihood, "discrete", False)
        return (
            "probabilities of labels" if discrete else getattr(likelihood, "responses", "responses")
        )

    def _epochs_line(self) -> str:
        stages = len(np.unique(self.history.stage))
        seconds = float(np.sum(self.history.seconds))
        staged = f" in {stages} stages" if stages > 1 else ""
        best = some_of((int(epoch) + 1 for epoch in self.best_epoch), most=8)
        return f"{len(self.history)}{staged}, {seconds:.0f} s; best {best}"

    def _warnings(self) -> list[str]:
        kinds = [kind for kind in self.collapse if kind is not None]
        lines = [
            f"collapse, {kind} ({kinds.count(kind)} of {counted(self.replicates, 'replicate')})"
            for kind in dict.fromkeys(kinds)
        ]
        if self.ended is not None:
            lines.append(self.ended)
        elif np.any(self.skipped_steps):
            lines.append(f"{counted(int(np.sum(self.skipped_steps)), 'step')} skipped, not finite")
        if self.steps is not None and self.steps < FEW_STEPS:
            lines.append(f"{counted(self.steps, 'step')}: too few to settle")
        return [*lines, "interrupted"] if self.interrupted else lines

    def subset(self, places: Sequence[int]) -> Self:
        """Some of the replicates, as if they were all there are.

        Args:
            places: which of the R, in their new order.

        Raises:
            ValueError: none, or places outside 0 … R − 1.
        """
        chosen, count = [int(place) for place in places], self.replicates
        if not chosen or min(chosen) < 0 or max(chosen) >= count:
            raise ValueError(f"places must be of {count} replicates, from 0, not {chosen}")

        def of_chosen(values: Any) -> Any:
            is_array = isinstance(values, np.ndarray)
            return values[chosen] if is_array else [values[place] for place in chosen if values]

        history = self.history
        if len(history):
            by_epoch = {name: getattr(history, name)[:, chosen] for name in ("train", "valid")}
            history = replace(history, **by_epoch)
        result = replace(
            self,
            history=history,
            sampler=None if self.sampler is None else self.sampler.subset(chosen),
            **{name: of_chosen(getattr(self, name)) for name in BY_REPLICATE},
        )
        result.kept_between_calls = self.kept_between_calls.setdefault(tuple(chosen), {})
        return result

    @ONE_THREAD
    def at(self, penalty: float) -> Self:
        """The fit with copies of its programs at one λ of the range that it was fitted for.

        Args:
            penalty: λ, nats for each entry kept.

        Raises:
            ValueError: a fit of one λ; a λ outside the range.

        Example:
            >>> import torch
            >>> from lexppl.inference import fit
            >>> from lexppl.systems import lex
            >>> data = torch.randn(60, 3), torch.arange(60) % 2
            >>> every = lex(3, classes=2, penalty=(0.005, 0.08), hidden=(4,), predictor_hidden=(4,))
            >>> fit(every, data, epochs=1, progress=False).at(0.04).model.selector.penalty
            0.04
        """
        models = [copy.deepcopy(model) for model in self.models]
        for selector in (selector for model in models for selector in conditioned(model)):
            selector.penalty = selector.checked(penalty)
        return replace(self, models=models)

    @property
    def penalty_range(self) -> tuple[float, float]:
        """The lowest and the highest λ that the selectors were fitted for.

        Raises:
            ValueError: a fit of one λ.
        """
        selector = conditioned(self.model)[0]
        return selector.low, selector.high

    def order(self, x: Tensor, *, draws: int = 20) -> Tensor:
        """The entries of each row in the order in which a rising λ lets them go, `(N, G)`.

        By `∫ p(z_g = 1 | x, λ) d log λ` over the range of the fit, at 17 λ, mean over replicates:
        of entries that are kept up to a λ and not beyond, in the order of these λ. The first number
        of a row is that of the entry that goes first, the last of the one that stays longest; of
        equal ones the first entry goes first.

        Args:
            x: rows, `(N, *event)`.
            draws: masks of a law whose probabilities are not stated, as of a sequential one, and
                draws of latents that all rows share.

        Raises:
            ValueError: a fit of one λ; rows unlike those of the fit.

        Example:
            >>> import torch
            >>> from lexppl.inference import fit
            >>> from lexppl.systems import lex
            >>> x = torch.randn(300, 3, generator=torch.Generator().manual_seed(0))
            >>> every = lex(3, classes=2, penalty=(0.005, 0.5), hidden=(8,), predictor_hidden=(8,))
            >>> result = fit(every, (x, (x[:, 1] > 0).long()), epochs=40, batch_size=50,
            ...     valid=None, learning_rate=1e-2, progress=False)
            >>> (result.order(x[:100])[:, -1] == 1).float().mean() > 0.8
            tensor(True)
        """
        self.check(x)
        low, high = self.penalty_range
        area = x.new_zeros(())
        with drawing(self.seed, x.device):
            for penalty in np.geomspace(low, high, ORDER_PENALTIES).clip(low, high):
                for model, guide in zip(self.at(penalty).models, self.guides, strict=True):
                    program = FittedProgram(model, guide, (x[:1],), draws)
                    area = area + torch.cat([_kept(program, part) for part in x.split(100)])
        return area.argsort(dim=-1, stable=True)

    def as_draws(self) -> Self:
        """The R replicates as R draws of one program's parameters: a chain of independent draws.

        With `row_weights="dirichlet"` they are draws of the weighted-likelihood bootstrap (Newton &
        Raftery 1994), by seed alone a deep ensemble (Lakshminarayanan et al. 2017).

        Returns:
            One program, whose parameters are sample sites by their names, and a guide of the draws.

        Raises:
            ValueError: one replicate, draws already, guides of their own, or replicates that differ
                in more than parameters.

        Example:
            >>> import torch
            >>> from lexppl.inference import fit
            >>> from lexppl.systems import lex
            >>> data = torch.randn(60, 3), torch.arange(60) % 2
            >>> small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
            >>> drawn = fit(small, data, epochs=1, replicates=4, progress=False).as_draws()
            >>> drawn.replicates, drawn.sampler.name, drawn.guides[0].draws
            (1, 'deep ensemble', 4)
        """
        self._refuse_draws()
        sampler = "bootstrap" if self.row_weights == "dirichlet" else "deep ensemble"
        guide = SampledGuide(stacked_parameters(self.models))
        first = self.subset([self.best])
        return replace(
            first,
            models=[DrawnParameters(self.model, list(guide.sites))],
            guides=[guide],
            best_valid=np.full(1, np.nan),
            modules=[],
            sampler=SamplerRecord(sampler, are_chains=False),
        )

    def _refuse_draws(self) -> None:
        if self.sampler is not None:
            raise ValueError(f"this result has draws already, by {self.sampler.name}")
        if self.replicates < 2:
            raise ValueError(
                "as_draws() needs two replicates or more, and this fit has one: give replicates=, "
                'and for weighted rows row_weights="dirichlet"'
            )
        if any(guide is not None for guide in self.guides):
            raise ValueError("only parameters of programs can be draws: fit without guide=")
        differing = replicate_hyperparameters(self.models)
        named = [f"{setting.path}.{setting.attribute}".lstrip(".") for setting in differing]
        if named:
            raise ValueError(f"the replicates differ in {', '.join(named)}: fit one model R times")

    def check(self, x: Tensor, y: Tensor | None = None, *, in_type: bool = True) -> None:
        """Refuse rows that are not like those of the fit.

        Args:
            x, y: the rows.
            in_type: whether they must be of the model's type, and where it is.

        Raises:
            ValueError: other shapes, type or device, values that are not finite, no rows, images of
                another scale, texts of no words, labels not seen in the fit, impossible responses.
            TypeError: rows or responses that are no tensors.
        """
        for name, value in (("x", x), ("y", y)):
            if not isinstance(value, Tensor) and (value is not None or name == "x"):
                raise TypeError(
                    f"{name} must be a tensor; it is {type(value).__name__}: torch.as_tensor makes "
                    "one of an array"
                )
        refuse_single_row(x, y, row=self.event_shape)
        if len(x) == 0:
            raise ValueError("x has no rows")
        shape = tuple(x.shape[1:])
        if shape != self.event_shape:
            if len(shape) == len(self.event_shape) == 1:
                raise ValueError(
                    f"x must have {self.event_shape[0]} features, as in fit; it has {shape[0]}"
                )
            raise ValueError(f"rows of x must have shape {self.event_shape}, as in fit; {shape}")
        model = self.models[0]
        weights = model.parameters() if isinstance(model, nn.Module) else iter(())
        weight = next((p for p in weights if p.is_floating_point()), None)
        if in_type and weight is not None:
            check_alike(x, weight)
        refuse_not_finite("x", x)
        if self.unit_pixels:
            refuse_other_scale(x)
        refuse_unlike(model, x)
        if y is None:
            return
        if len(y) != len(x):
            raise ValueError(f"x has {len(x)} rows and y has {len(y)}")
        refuse_not_finite("y", y)
        labelled(model, x, y)
        refuse_responses(model, y)
        if self.labels is not None and y.dim() == 1:
            unseen = sorted(map(int, set(y.unique().tolist()) - set(self.labels)))
            if unseen:
                raise ValueError(f"y has labels {unseen}; fit saw {list(self.labels)}")


def untrained(models: list[Any], guides: list[Any], **known: Any) -> FitResult:
    """Programs, each with its guide, that no epochs have fitted: given ones, or of a sampler."""
    count = len(models)
    none = np.zeros((0, count))
    history = History(none, none, np.zeros(0, dtype=int), np.zeros(0))
    best = np.zeros(count, dtype=int), np.full(count, np.nan)
    return FitResult(models, guides, None, history, *best, [None] * count, False, **known)
