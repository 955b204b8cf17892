"""Gradients as the optimizers need them: finite, and with the strides of their parameters."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim import Optimizer


def laid_out_as(parameter: Tensor, gradient: Tensor) -> Tensor:
    """A gradient with the strides of its parameter, since fused Adam pairs the two by place in
    memory."""
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


class StepGuard:
    """What lets optimizers step, but for replicates whose loss or gradient is NaN or infinite.

    Of these no parameter moves, and none of an optimizer's moments; the others' step stands. On a
    CPU, where nothing waits for a number, one pass over the gradients tells whether any is not
    finite, and only then more is done. Elsewhere a fused optimizer of one replicate is given the
    flag, as automatic mixed precision does it; of several, and for other optimizers, what was there
    before the step is put back by it. Nothing waits there: flags are looked at after the epoch.

    Args:
        replicates: R; of several, parameters are `(R, …)`.
        optimizers: that step.

    Example:
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> guard = StepGuard(1, [torch.optim.Adam([weight])])
        >>> weight.grad = torch.tensor([0.0, torch.nan])
        >>> guard.step([torch.zeros(1)])
        >>> weight.tolist(), guard.epoch_over(1).tolist()
        ([1.0, 1.0], [[False]])
    """

    def __init__(self, replicates: int, optimizers: Sequence[Optimizer]) -> None:
        self._replicates, self._optimizers = replicates, optimizers
        self._flags: list[tuple[int, Tensor]] = []
        self._steps = 0
        self._one: Tensor | None = None

    def step(self, losses: Sequence[Tensor]) -> None:
        """Move what has finite gradients.

        Args:
            losses: of each term, `(R,)`.
        """
        gradients = [p.grad for p in self._held() if p.grad is not None]
        place, self._steps = self._steps, self._steps + 1
        if losses[0].device.type != "cpu":
            self._step_elsewhere(gradients, losses, place)
        elif not self._any_bad([*gradients, torch.cat(list(losses))]):
            for optimizer in self._optimizers:
                optimizer.step()
        else:
            good = self._good(gradients, losses)
            self._flags.append((place, good))
            if bool(good.any()):
                self._step_of(gradients, good)

    def epoch_over(self, steps: int) -> NDArray[np.bool_]:
        """Which of an epoch's steps were made, `(T, R)`; the next epoch begins.

        Args:
            steps: T.
        """
        # Ctrl-C may come between a step and its loss.
        made = np.ones((max(steps, self._steps), self._replicates), dtype=bool)
        if self._flags:
            places, flags = zip(*self._flags, strict=True)
            made[list(places)] = torch.stack(flags).cpu().numpy()
        self._flags, self._steps = [], 0
        return made[:steps]

    def state(self) -> dict[str, Any]:
        """What is known of the epoch's steps so far, to be put back by :meth:`restore`."""
        flags = torch.stack([good for _, good in self._flags]) if self._flags else None
        return {"steps": self._steps, "places": [p for p, _ in self._flags], "flags": flags}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on within an epoch.

        Args:
            state: of its steps so far.
        """
        flags = () if state["flags"] is None else state["flags"]
        self._steps, self._flags = state["steps"], list(zip(state["places"], flags, strict=True))

    def _held(self) -> list[Tensor]:
        return [
            parameter
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]

    def _found(self, tensors: list[Tensor]) -> Tensor:
        """1 where a number of any is not finite, else 0: what loss scaling asks after each step."""
        found = torch.zeros((), dtype=torch.float32, device=tensors[0].device)
        if self._one is None:
            self._one = torch.ones_like(found)
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, found, self._one)
        return found

    def _any_bad(self, tensors: list[Tensor]) -> bool:
        return bool(self._found(tensors))

    def _good(self, gradients: Sequence[Tensor], losses: Sequence[Tensor]) -> Tensor:
        """`(R,)`."""
        rows = [t.reshape(self._replicates, -1) for t in (*gradients, *losses)]
        return torch.cat(rows, 1).isfinite().all(1)

    def _step_elsewhere(
        self, gradients: list[Tensor], losses: Sequence[Tensor], place: int
    ) -> None:
        takes_flag = [getattr(o, "_step_supports_amp_scaling", False) for o in self._optimizers]
        if self._replicates > 1 or losses[0].device.type != "cuda" or not all(takes_flag):
            good = self._good(gradients, losses)
            self._flags.append((place, good))
            self._step_of(gradients, good)
            return
        found = self._found([*gradients, torch.cat(list(losses))])
        self._flags.append((place, (found == 0).unsqueeze(0)))
        for optimizer in self._optimizers:
            optimizer.grad_scale, optimizer.found_inf = None, found  # type: ignore[attr-defined]
            optimizer.step()
            del optimizer.grad_scale, optimizer.found_inf  # type: ignore[attr-defined]

    @torch.no_grad()
    def _step_of(self, gradients: Sequence[Tensor], good: Tensor) -> None:
        """A step of some of the replicates; the others' parameters and moments are put back."""
        for gradient in gradients:
            # Zeros, so that what an optimizer has not made yet begins finite.
            gradient.copy_(torch.where(self._wide(good, gradient), gradient, 0.0))
        before = {id(tensor): tensor.clone() for tensor, _ in self._moved()}
        for optimizer in self._optimizers:
            optimizer.step()
        for tensor, by_replicate in self._moved():
            moves = self._wide(good, tensor) if by_replicate else good.any()
            # What was made in this step begins with zeros.
            was = before.get(id(tensor), torch.zeros_like(tensor))
            tensor.copy_(torch.where(moves, tensor, was))

    def _moved(self) -> list[tuple[Tensor, bool]]:
        """Parameters and what optimizers hold beside them, and whether each replicate has its own:
        of a count of steps they have one. A count that an optimizer keeps on the CPU, where it can
        not be put back without waiting, goes on."""
        found: list[tuple[Tensor, bool]] = []
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    held = optimizer.state.get(parameter, {}).values()
                    found += [
                        (one, one.shape == parameter.shape)
                        for one in (parameter, *held)
                        if isinstance(one, Tensor) and one.device == parameter.device
                    ]
        return found

    def _wide(self, good: Tensor, tensor: Tensor) -> Tensor:
        """`(R, 1, …)`; of one replicate, whose parameters have no such dimension, a scalar."""
        return good.any() if self._replicates == 1 else good.reshape(-1, *[1] * (tensor.dim() - 1))
