"""R replicates of the same programs, trained as one with a leading dimension."""

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.overrides import TorchFunctionMode

from lexppl.inference.contexts import RowWeights
from lexppl.inference.objective.objective import Objective
from lexppl.inference.replicate_hyperparameters import (
    differing_tensors,
    refuse_other_stages,
    replicate_hyperparameters,
)
from lexppl.inference.stages import LossTerm, TrainingModules


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


READS_A_NUMBER = ("data-dependent control flow", "calling .item()")
"""In what torch says of a program that a vectorised number is read by, for a branch or a shape."""


class Replicates:
    """R copies of the terms' modules, run at once by `torch.func.vmap`.

    Learned parameters have a leading dimension R. What is not learned is shared; where `differ`,
    numbers and given tensors (λ, k, an imputer's constant) have a dimension R too.
    """

    def __init__(self, copies: list[TrainingModules], differ: bool = False) -> None:
        self.count = len(copies)
        self.template = copies[0]
        self.draws_in_place = False
        """Whether a program was seen to draw in place, which `vmap` refuses."""
        self.differ = differ
        if differ:
            refuse_other_stages([one.stages for one in copies])
        self.numbers = replicate_hyperparameters(copies) if differ else []
        learned = [n for n, p in self.template.named_parameters() if p.requires_grad]
        tracked = tracked_buffers(self.template)
        if self.count > 1:
            tracked += [n for n in _fitted_buffers(self.template) if n not in tracked]
        given = differing_tensors(copies, learned) if differ else []
        tracked += [name for name in given if name not in tracked]
        self.parameters: dict[str, Tensor]
        self.buffers: dict[str, Tensor]
        if self.count == 1:
            own = dict(self.template.named_parameters())
            self.parameters = {name: own[name] for name in learned}
            held = dict(self.template.named_buffers())
            self.buffers = {name: held[name] for name in tracked}
        else:
            every = [dict(c.named_parameters()) for c in copies]
            self.parameters = {
                name: torch.stack([own[name].detach() for own in every]).requires_grad_()
                for name in learned
            }
            held_by = [{**dict(c.named_parameters()), **dict(c.named_buffers())} for c in copies]
            self.buffers = {
                name: torch.stack([h[name].detach() for h in held_by]) for name in tracked
            }

        held_here = {
            **dict(self.template.named_parameters()),
            **dict(self.template.named_buffers()),
        }
        names = {id(held_here[n]): n for n in (*self.parameters, *self.buffers)}
        self._places: list[tuple[dict[str, Any], str, str]] = [
            (held, attribute, names[id(value)])
            for module in self.template.modules()
            for held in (module._parameters, module._buffers)
            for attribute, value in held.items()
            if id(value) in names
        ]
        device = next((p.device for p in self.parameters.values()), None)
        settings = {}
        for number in self.numbers:
            name = f"{number.path}.{number.attribute}"
            settings[name] = torch.tensor(number.values, device=device)
            holder = vars(self.template.get_submodule(number.path))
            self._places.append((holder, number.attribute, name))
        self._settings = settings

    def losses(
        self,
        term: LossTerm,
        objective: Objective,
        batch: tuple[Tensor, ...],
        by_replicate: bool = False,
        weights: Tensor | None = None,
        plate: str | None = None,
    ) -> Tensor:
        """The loss of each replicate, `(R,)`; rows in common or `(R, B, …)`, weights `(R, B)`."""

        def one(
            state: dict[str, Tensor], rows: tuple[Tensor, ...], weights: Tensor | None = None
        ) -> Tensor:
            with self._holding(state), weighing(weights, plate):
                loss: Tensor = self.template(term, objective, rows)
            return loss

        if self.count == 1:
            if by_replicate:
                batch = tuple(column[0] for column in batch)
            with weighing(None if weights is None else weights[0], plate):
                loss: Tensor = self.template(term, objective, batch)
            return loss.reshape(1)

        state = {**self.parameters, **self.buffers, **self._settings}
        if not objective.vectorised:
            # Pyro's own objectives read numbers off their tensors, which vmap cannot either.
            each = [
                one(
                    {name: value[r] for name, value in state.items()},
                    tuple(column[r] for column in batch) if by_replicate else batch,
                    None if weights is None else weights[r],
                )
                for r in range(self.count)
            ]
            return torch.stack(each)
        over: tuple[int | None, ...] = (0, 0 if by_replicate else None)
        given: tuple[Any, ...] = (state, batch)
        if weights is not None:
            over, given = (*over, 0), (*given, weights)
        with self._naming_numbers():
            return self._vectorised(one, over, given)

    def _vectorised(
        self, one: Callable[..., Tensor], over: tuple[int | None, ...], given: tuple[Any, ...]
    ) -> Tensor:
        run = vmap(one, in_dims=over, randomness="different")
        losses: Tensor
        if not self.draws_in_place:
            try:
                losses = run(*given)
                return losses
            except RuntimeError as error:
                if "inplace randomness" not in str(error):
                    raise
            # From here on every call of torch is looked at, a tenth of a small fit.
            self.draws_in_place = True
        with OutOfPlaceDraws():
            losses = run(*given)
        return losses

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
        own = self.parameters, self.buffers
        self.parameters = {name: state[name] for name in self.parameters}
        self.buffers = {name: state[name] for name in self.buffers}
        try:
            with self._holding(dict(state)) if self.count == 1 else nullcontext():
                yield
        finally:
            self.parameters, self.buffers = own

    @contextmanager
    def _naming_numbers(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            if not self.numbers or not any(sign in str(error) for sign in READS_A_NUMBER):
                raise
            names = [f"{n.path}.{n.attribute}" for n in self.numbers]
            raise ValueError(
                f"the replicates differ in {names}, and what the program does depends on the value "
                "of one of them, so that they cannot be trained as one: fit them one by one"
            ) from error

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
        state |= {f"{n.path}.{n.attribute}": n.values[index] for n in self.numbers}
        with self._holding(state):
            yield self.template

    @contextmanager
    def _holding(self, state: dict[str, Any]) -> Iterator[None]:
        """Let the template's modules, shared ones too, hold other tensors for a while."""
        before = [(held, attribute, held[attribute]) for held, attribute, _ in self._places]
        try:
            for held, attribute, name in self._places:
                held[attribute] = state[name]
            yield
        finally:
            for held, attribute, value in before:
                held[attribute] = value

    def snapshot(self) -> dict[str, Tensor]:
        """Copies of all that training changes, each `(R, …)`."""
        state = {**self.parameters, **self.buffers}
        if self.count == 1:
            return {name: value.detach().clone()[None] for name, value in state.items()}
        return {name: value.detach().clone() for name, value in state.items()}

    def merged(self, best: dict[str, Tensor], improved: Tensor) -> dict[str, Tensor]:
        """The best states, replaced by the present ones where a replicate improved."""
        present = self.snapshot()
        return {
            name: torch.where(improved.reshape(-1, *[1] * (value.dim() - 1)), present[name], value)
            for name, value in best.items()
        }

    def load(self, state: dict[str, Tensor]) -> None:
        """Put a snapshot back."""
        with torch.no_grad():
            for name, value in {**self.parameters, **self.buffers}.items():
                value.copy_(state[name][0] if self.count == 1 else state[name])

    def separated(self) -> list[TrainingModules]:
        """The replicates as ordinary modules again, in evaluation mode."""
        if self.count == 1:
            return [self.template.eval()]
        result = []
        for r in range(self.count):
            one = copy.deepcopy(self.template)
            values = {**dict(one.named_parameters()), **dict(one.named_buffers())}
            with torch.no_grad():
                for name, stacked in {**self.parameters, **self.buffers}.items():
                    values[name].copy_(stacked[r])
            for number in self.numbers:
                setattr(one.get_submodule(number.path), number.attribute, number.values[r])
            result.append(one.eval())
        return result


def weighing(weights: Tensor | None, plate: str | None) -> AbstractContextManager[Any]:
    """Run a program with the weights of its rows, `(B,)`, or without where there are none."""
    if weights is None or plate is None:
        return nullcontext()
    return RowWeights(weights, plate)


def tracked_buffers(module: nn.Module) -> list[str]:
    """Names of the buffers that training itself moves: running statistics."""
    names = []
    for prefix, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            names += [
                f"{prefix}.{n}" for n, b in part.named_buffers(recurse=False) if b is not None
            ]
    return names


def _fitted_buffers(module: nn.Module) -> list[str]:
    """Names of the buffers that were fitted to a replicate's rows, such as trees."""
    return [
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if hasattr(part, "fit_rows")
        for name, _ in part.named_buffers()
    ]


def reinitialised(terms: TrainingModules) -> TrainingModules:
    """A copy whose parameters are drawn anew (:func:`redraw`)."""
    fresh = copy.deepcopy(terms)
    redraw(fresh)
    return fresh


def redraw(terms: TrainingModules, guides_alone: bool = False) -> None:
    """Draw what is learned anew by `reset_parameters`; what a guide cannot draw stays."""
    guiding = {
        id(part)
        for stage in terms.stages
        for term in stage.terms
        if isinstance(term.guide, nn.Module)
        for part in term.guide.modules()
    }
    for name, part in terms.named_modules():
        own = [n for n, p in part.named_parameters(recurse=False) if p.requires_grad]
        if not own or (guides_alone and id(part) not in guiding):
            continue
        reset: Callable[[], None] | None = getattr(part, "reset_parameters", None)
        if callable(reset):
            reset()
        elif id(part) not in guiding:
            raise ValueError(
                f"replicates need initial weights of their own, and {type(part).__name__} "
                f"({name}) has parameters {own} but no reset_parameters(); give fit a function "
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
    states = [model.state_dict() for model in models]
    shapes = [{name: value.shape for name, value in state.items()} for state in states]
    for other in shapes[1:]:
        if other != shapes[0]:
            differing = sorted(set(other.items()) ^ set(shapes[0].items()))
            raise ValueError(
                f"the models must have parameters of the same names and shapes; {differing[0][0]!r}"
                " is not in all of them alike"
            )
    mean = {}
    for name, first in states[0].items():
        if first.is_floating_point():
            mean[name] = torch.stack([state[name] for state in states]).mean(0)
        else:
            mean[name] = first
    result = copy.deepcopy(models[0])
    result.load_state_dict(mean)
    return result
