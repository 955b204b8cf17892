"""R replicates of the same programs, trained as one with a leading dimension."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from lexppl.distributions.computed_once import MadeOnce
from lexppl.fingerprint import contents, digest
from lexppl.inference.batches import Columns
from lexppl.inference.contexts import RowWeights
from lexppl.inference.objective.objective import Objective
from lexppl.inference.stages import (
    LossTerm,
    Stage,
    TrainingModules,
    differing,
    stacked_tensors,
    tensors_of,
    terms_of,
)


def _normal(like: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    return torch.randn_like(like) * std + mean


def _uniform(like: Tensor, low: float = 0.0, high: float = 1.0, **_: Any) -> Tensor:
    return torch.rand_like(like) * (high - low) + low


def _exponential(like: Tensor, rate: float = 1.0, **_: Any) -> Tensor:
    return -torch.log1p(-torch.rand_like(like)) / rate


def _cauchy(like: Tensor, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Tensor:
    return median + sigma * torch.tan(torch.pi * (torch.rand_like(like) - 0.5))


class OutOfPlaceDraws(TorchFunctionMode):
    """Replace in-place draws such as `torch.empty(shape).normal_()` by draws of a new tensor, as
    `torch.func.vmap` cannot fill a shared tensor with draws that differ."""

    _DRAWS: ClassVar[Mapping[Any, Callable[..., Tensor]]] = MappingProxyType(
        {
            torch.Tensor.normal_: _normal,
            torch.Tensor.uniform_: _uniform,
            torch.Tensor.exponential_: _exponential,
            torch.Tensor.cauchy_: _cauchy,
        }
    )

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        return self._DRAWS.get(func, func)(*args, **(kwargs or {}))


VMAP_FALLBACKS = ("draws_in_place", "one_by_one")
"""What replicates learn of their programs in the first steps, on which later draws depend."""


class Replicates:
    """R copies of the terms' modules, run at once by `torch.func.vmap`, or else one by one.

    Learned parameters have a leading dimension R. What is not learned is shared; where `differ`,
    numbers and given tensors (λ, k, an imputer's constant) have a dimension R too.
    """

    def __init__(self, copies: list[TrainingModules], differ: bool = False) -> None:
        self.count = len(copies)
        self.template = copies[0]
        self.draws_in_place = False
        """Whether a program was seen to draw in place, which `vmap` refuses."""
        self.one_by_one = False
        """Whether a program was seen to do something else that `vmap` refuses."""
        self.differ = differ
        if differ:
            refuse_other_stages([modules.stages for modules in copies])
        self.numbers = replicate_hyperparameters(copies) if differ else []
        learned = [n for n, p in self.template.named_parameters() if p.requires_grad]
        tracked = tracked_buffers(self.template)
        if self.count > 1:
            # Trees and what else was fitted to a replicate's rows.
            fitted = _buffers_where(self.template, "fit_rows", recurse=True)
            tracked += [name for name in fitted if name not in tracked]
        if differ:
            moved = {*learned, *tracked}
            tracked += [n for n in differing(stacked_tensors(copies)) if n not in moved]
        state = {name: tensors_of(self.template)[name] for name in (*learned, *tracked)}
        names = {id(value): name for name, value in state.items()}
        if self.count > 1:
            state = stacked_tensors(copies, state)
        self.parameters = {name: state[name].requires_grad_() for name in learned}
        self.buffers = {name: state[name] for name in tracked}
        self._places: list[tuple[dict[str, Any], str, str]] = [
            (holder, attribute, names[id(value)])
            for module in self.template.modules()
            for holder in (module._parameters, module._buffers)
            for attribute, value in holder.items()
            if id(value) in names
        ]
        device = next((p.device for p in self.parameters.values()), None)
        self._settings: dict[str, Tensor] = {}
        for number in self.numbers:
            self._settings[number.name] = torch.tensor(number.values, device=device)
            holder = vars(self.template.get_submodule(number.path))
            self._places.append((holder, number.attribute, number.name))

    def losses(
        self,
        term: LossTerm,
        objective: Objective,
        batch: Columns,
        by_replicate: bool = False,
        weights: Tensor | None = None,
        plate: str | None = None,
    ) -> Tensor:
        """The loss of each replicate, `(R,)`; rows in common or `(R, B, …)`, weights `(R, B)`."""

        def loss_of(state: dict[str, Any], rows: Columns, weights: Tensor | None = None) -> Tensor:
            with self._holding(state), weighing(weights, plate):
                return self.template(term, objective, rows)

        if self.count == 1:
            if by_replicate:
                batch = tuple(column[0] for column in batch)
            with weighing(None if weights is None else weights[0], plate):
                loss: Tensor = self.template(term, objective, batch)
            return loss.reshape(1)

        state = {**self.parameters, **self.buffers}
        # Pyro's own objectives read numbers off their tensors, which vmap cannot either.
        if objective.vectorised and not self.one_by_one:
            over: tuple[int | None, ...] = (0, 0 if by_replicate else None)
            arguments: tuple[Any, ...] = ({**state, **self._settings}, batch)
            if weights is not None:
                over, arguments = (*over, 0), (*arguments, weights)
            try:
                return self._vectorised(loss_of, over, arguments)
            except RuntimeError as error:
                # What is wrong of itself is so of one by itself too, which has run before.
                reason = " ".join(str(error).split())
            self.one_by_one = True
            warnings.warn(
                f"the {self.count} replicates run one by one, as torch.func.vmap cannot run them "
                f"at once, such as a branch by a value or a tensor changed in place: {reason}",
                stacklevel=2,
            )
        losses = [
            loss_of(
                {name: value[r] for name, value in state.items()}
                | {number.name: number.values[r] for number in self.numbers},
                tuple(column[r] for column in batch) if by_replicate else batch,
                None if weights is None else weights[r],
            )
            for r in range(self.count)
        ]
        return torch.stack(losses)

    def _vectorised(
        self, run: Callable[..., Tensor], over: tuple[int | None, ...], arguments: tuple[Any, ...]
    ) -> Tensor:
        together = vmap(run, in_dims=over, randomness="different")
        if not self.draws_in_place:
            try:
                return together(*arguments)
            except RuntimeError as error:
                if "inplace randomness" not in str(error):
                    raise
            # From here on every call of torch is looked at, a tenth of a small fit.
            self.draws_in_place = True
        with OutOfPlaceDraws():
            return together(*arguments)

    @contextmanager
    def moving_only(self, names: Collection[str]) -> Iterator[None]:
        """Let no other parameter have a gradient inside, so that none of it is computed."""
        others = [value for name, value in self.parameters.items() if name not in names]
        for value in others:
            value.requires_grad_(False)
        try:
            yield
        finally:
            for value in others:
                value.requires_grad_()

    @contextmanager
    def standing_in(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """Let other tensors be the parameters and running statistics for a while."""
        before = self.parameters, self.buffers
        self.parameters = {name: state[name] for name in self.parameters}
        self.buffers = {name: state[name] for name in self.buffers}
        try:
            with self._holding(dict(state)) if self.count == 1 else nullcontext():
                yield
        finally:
            self.parameters, self.buffers = before

    @contextmanager
    def replicate(self, index: int) -> Iterator[TrainingModules]:
        """The template as one of the replicates, with its own weights, tensors and numbers."""
        if self.count == 1:
            yield self.template
            return
        state: dict[str, Any] = {
            name: value[index].detach().clone().requires_grad_(value.requires_grad)
            for name, value in {**self.parameters, **self.buffers}.items()
        }
        state |= {number.name: number.values[index] for number in self.numbers}
        with self._holding(state):
            yield self.template

    @contextmanager
    def _holding(self, state: dict[str, Any]) -> Iterator[None]:
        """Let the template's modules, shared ones too, hold other tensors for a while."""
        before = [(holder, name, holder[name]) for holder, name, _ in self._places]
        try:
            for holder, attribute, name in self._places:
                holder[attribute] = state[name]
            yield
        finally:
            for holder, attribute, value in before:
                holder[attribute] = value

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of all that training changes, each `(R, …)`."""
        state = {**self.parameters, **self.buffers}
        copies = {name: value.detach().clone() for name, value in state.items()}
        return {n: v[None] for n, v in copies.items()} if self.count == 1 else copies

    def merged(self, best: dict[str, Tensor], improved: Tensor) -> dict[str, Tensor]:
        """The best states, replaced by the present ones where a replicate improved."""
        present = self.snapshot()
        return {
            name: torch.where(improved.reshape(-1, *[1] * (value.dim() - 1)), present[name], value)
            for name, value in best.items()
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Set parameters and buffers to those of a snapshot."""
        with torch.no_grad():
            for name, value in {**self.parameters, **self.buffers}.items():
                value.copy_(state[name][0] if self.count == 1 else state[name])

    def separated(self) -> list[TrainingModules]:
        """The replicates as ordinary modules again, in evaluation mode."""
        if self.count == 1:
            return [self.template.eval()]
        result = []
        for r in range(self.count):
            modules = copy.deepcopy(self.template)
            values = tensors_of(modules)
            with torch.no_grad():
                for name, stacked in {**self.parameters, **self.buffers}.items():
                    values[name].copy_(stacked[r])
            for number in self.numbers:
                setattr(modules.get_submodule(number.path), number.attribute, number.values[r])
            result.append(modules.eval())
        return result


def weighing(weights: Tensor | None, plate: str | None) -> AbstractContextManager[Any]:
    """Run a program with the weights of its rows, `(B,)`, or without where there are none."""
    return nullcontext() if weights is None or plate is None else RowWeights(weights, plate)


def tracked_buffers(module: nn.Module) -> list[str]:
    """Names of the buffers that training itself moves: running statistics."""
    return _buffers_where(module, "track_running_stats", recurse=False)


def _buffers_where(module: nn.Module, attribute: str, recurse: bool) -> list[str]:
    return [
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if getattr(part, attribute, False)
        for name, _ in part.named_buffers(recurse=recurse)
    ]


def reinitialised(terms: TrainingModules) -> TrainingModules:
    """A copy whose parameters are drawn anew (:func:`redraw`)."""
    fresh = copy.deepcopy(terms)
    redraw(fresh)
    return fresh


def redraw(terms: TrainingModules, guides_alone: bool = False) -> None:
    """Draw what is learned anew by `reset_parameters`; what a guide cannot draw stays."""
    guides = [term.guide for term in terms_of(terms.stages) if isinstance(term.guide, nn.Module)]
    guiding = {id(part) for guide in guides for part in guide.modules()}
    for name, part in terms.named_modules():
        learned = [n for n, p in part.named_parameters(recurse=False) if p.requires_grad]
        if not learned or (guides_alone and id(part) not in guiding):
            continue
        reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        elif id(part) not in guiding:
            raise ValueError(
                f"replicates need initial weights of their own, and {type(part).__name__} "
                f"({name}) has parameters {learned} but no reset_parameters(); give fit a function "
                "that builds the model instead of the model"
            )


Module = TypeVar("Module", bound=nn.Module)


def averaged(models: Sequence[Module]) -> Module:
    """A copy of the first model whose floating parameters and buffers are the means over all.

    XTab's global mask network is the average of its seeds' (Uçar & Hajiramezanali 2022, eq. 6),
    which is a good network as far as hidden units mean the same.

    Args:
        models: modules of one architecture, such as a fit's replicates.

    Raises:
        ValueError: no models, or models whose parameters differ in name or shape.

    Example:
        >>> a, b = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> bool(torch.allclose(averaged([a, b]).weight, (a.weight + b.weight) / 2))
        True
    """
    if not models:
        raise ValueError("averaged needs at least one model; there is none")
    result = copy.deepcopy(models[0])
    stacked = stacked_tensors(models)
    with torch.no_grad():
        for name, tensor in tensors_of(result).items():
            if tensor.is_floating_point():
                tensor.copy_(stacked[name].mean(0))
    return result


_NO_SETTINGS = frozenset([*vars(nn.Module()), "stages"])
"""What torch keeps in a module, and the stages of `Terms`, which are compared by themselves."""


@dataclass(frozen=True)
class ReplicateHyperparameter:
    """A module's number that differs between replicates, such as λ or k."""

    path: str
    attribute: str
    values: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"{self.path}.{self.attribute}"


def replicate_hyperparameters(copies: Sequence[nn.Module]) -> list[ReplicateHyperparameter]:
    """The numbers in which the replicates' modules differ."""
    modules = [list(module.named_modules()) for module in copies]
    if len({len(m) for m in modules}) > 1:
        raise ValueError(
            "replicates must be built of the same parts; they have "
            f"{[len(m) for m in modules]} modules"
        )
    numbers = []
    for same_place in zip(*modules, strict=True):
        path, first = same_place[0]
        kinds = [type(module).__name__ for _, module in same_place]
        if len(set(kinds)) > 1:
            raise ValueError(f"replicates must be built of the same parts; {path!r} is {kinds}")
        priors = [vars(module).get("_pyro_samples") for _, module in same_place]
        if not all(alike(priors[0], other) for other in priors):
            raise ValueError(
                "replicates may differ in the numbers of priors that lexppl.models.with_prior "
                f"gave, not in those given by hand (PyroSample) or in kind; {path!r} has others"
            )
        for attribute, value in vars(first).items():
            of_torch = attribute in _NO_SETTINGS or attribute.startswith("_pyro")
            if of_torch or isinstance(value, MadeOnce):
                continue
            values = [vars(module).get(attribute) for _, module in same_place]
            if all(alike(value, other) for other in values):
                continue
            if not all(type(v) in (int, float) for v in values):
                raise ValueError(
                    "replicates may differ in numbers and in tensors; they differ in "
                    f"{attribute!r} of {kinds[0]} ({path})"
                )
            numbers.append(ReplicateHyperparameter(path, attribute, tuple(values)))
    return numbers


def alike(setting: Any, other: Any) -> bool:
    """Whether two settings are the same, as far as their parts show; modules within them are
    compared where they stand."""
    if setting is other:
        return True
    try:
        parts = [contents(v, "", strict=True, opaque=(nn.Module,)) for v in (setting, other)]
    except TypeError:
        return bool(setting == other)
    first, second = ({path: digest(leaf) for path, leaf in leaves.items()} for leaves in parts)
    return first == second


def refuse_other_stages(every: Sequence[Sequence[Stage]]) -> None:
    """Refuse replicates that are trained in other ways."""
    first = every[0]
    for others in every[1:]:
        if len(others) != len(first) or any(
            len(a.terms) != len(b.terms) for a, b in zip(first, others, strict=True)
        ):
            raise ValueError("replicates must have the same stages and terms")
        for a, b in zip(first, others, strict=True):
            if not alike((a.epochs, a.optimizer), (b.epochs, b.optimizer)):
                raise ValueError("replicates must have the same epochs and optimizer in each stage")
            for mine, theirs in zip(a.terms, b.terms, strict=True):
                if not alike((mine.objective, mine.weight), (theirs.objective, theirs.weight)):
                    raise ValueError(
                        "replicates must have the same objective; what may differ are numbers and "
                        f"tensors of modules. They are {mine.objective!r} and {theirs.objective!r}"
                    )
