"""Whether what a fit moves can be written and put back: optimizers, schedulers, loaders."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from lexppl.inference.batches import HasBatches, LoadedRows
from lexppl.inference.contexts import seeded
from lexppl.inference.stages import OptimizerFactory
from lexppl.inference.training.checkpoints.state_files import refuse_unwritable
from lexppl.inference.training.rows.row_weights import TrainingRows

SAMPLERS = (SequentialSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
"""Samplers whose next order follows from a generator's state alone."""
TRIED = 2
"""Steps before an optimizer's state is put back in a trial, and after."""


def refuse_unrestorable(
    parameters: Iterable[Tensor],
    make_optimizer: OptimizerFactory,
    make_scheduler: Callable[[Optimizer], LRScheduler] | None,
) -> None:
    """Try an optimizer on copies, and refuse one that goes another way once its state has been put
    back, or whose state cannot be written.

    Args:
        parameters: those that it is to move.
        make_optimizer, make_scheduler: as `fit` takes them.

    Raises:
        TypeError: by the optimizer's, or scheduler's, name.
    """
    held = [parameter.detach() for parameter in parameters]
    device = held[0].device
    with seeded(0, device):
        first = _Trial(held, make_optimizer, make_scheduler)
        first.step()
    name = type(first.optimizer).__name__
    refuse_unwritable(first.optimizer.state_dict(), f"the state of {name}")
    if first.scheduler is not None:
        called = type(first.scheduler).__name__
        refuse_unwritable(first.scheduler.state_dict(), f"the state of {called}")
    with seeded(0, device):
        again = _Trial(first.parameters, make_optimizer, make_scheduler)
    restore_optimizer(again.optimizer, first.optimizer.state_dict())
    if first.scheduler is not None and again.scheduler is not None:
        again.scheduler.load_state_dict(first.scheduler.state_dict())
    for one in (first, again):
        with seeded(1, device):
            one.step()
    if not all(map(torch.equal, first.parameters, again.parameters)):
        with_it = "" if first.scheduler is None else f", or {type(first.scheduler).__name__},"
        raise TypeError(
            f"{name}{with_it} goes another way once its state_dict() has been put back: it holds "
            "what is not in there, so that a fit cannot be continued; leave checkpoint out, or put "
            "it into the state"
        )


class _Trial:
    """An optimizer and its scheduler at work on copies."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        make_optimizer: OptimizerFactory,
        make_scheduler: Callable[[Optimizer], LRScheduler] | None,
    ) -> None:
        self.parameters = [p.detach().clone().requires_grad_() for p in parameters]
        self.optimizer = make_optimizer(self.parameters)
        self.scheduler = None if make_scheduler is None else make_scheduler(self.optimizer)

    def step(self) -> None:
        for number in range(1, TRIED + 1):
            for parameter in self.parameters:
                parameter.grad = torch.full_like(parameter, 0.5**number) + parameter.detach()
            self.optimizer.step()
            if self.scheduler is not None:
                self.scheduler.step()


def restore_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> None:
    """Put an optimizer's state back, to the bit: torch's own `load_state_dict` lets it have the
    parameters' type.

    Args:
        optimizer: made as the one whose state it is.
        state: of `state_dict()`.

    Raises:
        ValueError: groups or numbers of parameters that differ.
    """
    optimizer.load_state_dict(state)
    for saved, group in zip(state["param_groups"], optimizer.param_groups, strict=True):
        for place, parameter in zip(saved["params"], group["params"], strict=True):
            own = optimizer.state.get(parameter, {})
            for name, value in state["state"].get(place, {}).items():
                if isinstance(value, Tensor) and isinstance(own.get(name), Tensor):
                    own[name] = _laid_out(value, parameter)


def _laid_out(value: Tensor, parameter: Tensor) -> Tensor:
    """A copy whose memory lies as the parameter's does, where it is one number for each of its:
    fused optimizers go through both alike."""
    if value.shape != parameter.shape:
        return value.clone()
    like = torch.empty_like(parameter, dtype=value.dtype, device=value.device, requires_grad=False)
    return like.copy_(value)


def generators_of(rows: Iterable[TrainingRows | None]) -> list[torch.Generator]:
    """The generators, besides torch's default ones, that the next batches of loaders follow from.

    Args:
        rows: to learn from, and to judge by.

    Raises:
        TypeError: a loader whose next batches follow from something else too.
    """
    found: dict[int, torch.Generator] = {}
    for one in rows:
        # What has batches of its own draws them from torch's default generator.
        if isinstance(one, LoadedRows) and not isinstance(one.loader, HasBatches):
            for part in _drawing_parts(one.loader):
                generator = getattr(part, "generator", None)
                if generator is not None:
                    found[id(generator)] = generator
    return list(found.values())


def _drawing_parts(loader: DataLoader[Any]) -> Iterator[Any]:
    """What of a loader may draw."""
    reason = None
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    if loader.persistent_workers:
        reason = "has persistent workers, whose random states go on from epoch to epoch"
    elif not getattr(loader, "in_order", True):
        reason = "gives batches in the order in which workers are done"
    elif type(sampler) not in SAMPLERS:
        reason = f"has a {type(sampler).__name__}"
    elif loader.batch_sampler is not None and type(loader.batch_sampler) is not BatchSampler:
        reason = f"has a {type(loader.batch_sampler).__name__}"
    if reason is not None:
        raise TypeError(
            f"a checkpoint needs batches that can be drawn again, and the loader {reason}: give "
            "DataLoader(data, batch_size, shuffle=True), tensors or arrays, or leave checkpoint out"
        )
    yield from (loader, sampler)
