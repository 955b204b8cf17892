"""Masks drawn one feature after another, each choice seeing only what is kept already."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution, constraints
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from lexppl.argument_checks import fraction, int_between, shaped
from lexppl.distributions.gradients import may_carry_gradient

Policy = Callable[..., tuple[Tensor, Tensor]]
"""Called with one row at the start, unless rows have a start or a context, then, on the CPU, with
those that go on."""

# A log-probability of 0, whose product with it is then 0 and has a gradient that is no NaN.
_LEAST = -1e4


class SequentialMask(TorchDistribution):
    """A mask drawn entry by entry, each choice and the stop by what is kept already:

        p(j_1 … j_k | x) = Π_{t<k} (1 − s(z_t, x_{z_t})) π(j_{t+1} | z_t, x_{z_t}) s(z_k, x_{z_k}),

    with `z_t = {j_1 … j_t}`; after `most` entries it stops for certain. The policy sees `x ⊙ z_t`
    and `z_t` alone, so that **the choice of features carries nothing of hidden values**, `p(y |
    x_z, E = z) = p(y | x_z)`.

    The latent is the **sequence**, `(T, G)`: row t is the entry of step t one-hot, all zeros from
    the stop on. Its sum over steps, and the start, is the mask. `log_prob` is of the sequence,
    :meth:`set_log_prob` of a mask. With exploration ε a choice is `(1 − ε) π + ε uniform` over the
    entries that are left, and with ε′ the number kept is `(1 − ε′) p(k) + ε′ / (T + 1)`.

    Args:
        policy: from what is kept of rows `(…, *event)`, 0 elsewhere, the mask so far `(…, G)` and,
            where there is one, the context `(…, C)`, to the logits of the next entry `(…, G)` and
            of stopping `(…)`, row by row.
        x: rows, `(*batch, *event)`.
        entries: G.
        most: T, the most steps; G if None.
        carry: from masks `(…, G)` to the features `(…, *event)`; None where an entry is a feature.
        explore, explore_stop: ε and ε′, in [0, 1].
        event_dim: of x.
        start: the entries known before the first step, 0 or 1, `(*batch, G)` or `(G,)`: `z_0`, of
            which none is chosen. Where none is left it stops for certain. None for none.
        context: what else the policy reads at every step, `(*batch, C)` or `(C,)`, such as a row's
            λ. That the choice carries nothing of hidden values is then true given the context.

    Raises:
        ValueError: T outside 1 … G, a share outside [0, 1], rows of another shape than `(G,)`
            without a `carry`, a start of another shape or beside `explore_stop`.

    Source: Oosterhuis, Lyu, Anand. Local feature selection without label or feature leakage for
    interpretable machine learning predictions. ICML 2024.

    Example:
        >>> def policy(kept, mask):
        ...     return torch.zeros_like(mask), torch.zeros(mask.shape[:-1])
        >>> law = SequentialMask(policy, torch.zeros(2, 3), 3, most=2)
        >>> first = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
        >>> law.log_prob(first).exp()  # goes on, takes it of three, stops: 1/2 · 1/3 · 1/2
        tensor([0.0833, 0.0833])
        >>> known = SequentialMask(policy, torch.zeros(2, 3), 3, start=torch.tensor([0.0, 1, 0]))
        >>> known.set_log_prob(torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])).exp()
        tensor([0.1250, 0.0000])
    """

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012
    has_enumerate_support = False

    def __init__(
        self,
        policy: Policy,
        x: Tensor,
        entries: int,
        most: int | None = None,
        carry: Callable[[Tensor], Tensor] | None = None,
        *,
        explore: float = 0.0,
        explore_stop: float = 0.0,
        event_dim: int = 1,
        start: Tensor | None = None,
        context: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.policy, self.x, self.carry = policy, x, carry
        self.start, self.context = None if start is None else start.to(x), context
        self.entries = entries
        self.most = int_between("most", entries if most is None else most, 1, entries)
        event = x.shape[x.dim() - event_dim :]
        if carry is None and tuple(event) != (entries,):
            raise ValueError(
                f"x must have {entries} features, one for each entry; its rows have shape "
                f"{tuple(event)}: give carry="
            )
        self.explore = fraction("explore", explore, zero=True, one=True)
        self.explore_stop = fraction("explore_stop", explore_stop, zero=True, one=True)
        self._event_dim = event_dim
        shares = {"explore": self.explore, "explore_stop": self.explore_stop}
        self._options: Any = {**shares, "event_dim": event_dim, "start": start, "context": context}
        self._last: _Drawn | None = None
        batch, steps = x.shape[: x.dim() - event_dim], torch.Size((self.most, entries))
        super().__init__(batch, steps, validate_args=validate_args)
        for name, numbers, width in (("start", start, entries), ("context", context, "C")):
            if numbers is not None:
                shaped(name, numbers, *((*batch[n:], width) for n in range(len(batch) + 1)))
        if start is not None and self.explore_stop > 0.0:
            raise ValueError("explore_stop is of masks that start with no entry: leave start out")
        if start is not None and self._validate_args and not ((start == 0) | (start == 1)).all():
            raise ValueError("start must hold 0 and 1, the entries that are known")

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.boolean, 2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> SequentialMask:
        shape = torch.Size(batch_shape)
        event = self.x.shape[self.x.dim() - self._event_dim :]
        return SequentialMask(
            self.policy,
            self.x.expand(*shape, *event),
            self.entries,
            self.most,
            self.carry,
            **self._options,
            validate_args=False,
        )

    def mask_of(self, steps: Tensor) -> Tensor:
        """The masks of sequences `(…, T, G)`: the start and what their steps keep, `(…, G)`."""
        mask = steps.sum(-2)
        return mask if self.start is None else mask + self.start

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of the sequence, `sample_shape + batch_shape + (T, G)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        mask = self.mask_of(self.x.new_zeros((*shape, 1, self.entries)))
        going = self.x.new_ones(shape)
        log_alive, total = self.x.new_zeros(shape), self.x.new_zeros(shape)
        steps, every = [], []
        for t in range(self.most):
            choice, stop = self._next(mask, going == 1) if t > 0 else self._first(mask)
            log_stop, log_go, log_alive = self._stops(stop, log_alive, t)
            came, going = going == 1, going * (torch.rand_like(going) >= log_stop.exp())
            # Gumbel's largest: a draw by the logits, of any leading dimensions.
            noise = -torch.log(-torch.log(torch.rand_like(mask).clamp(1e-30, 1 - 1e-7)))
            chosen = one_hot((choice + noise).argmax(-1), self.entries)
            step = chosen.to(mask.dtype) * going[..., None]
            log_step = torch.where(going == 1, _at(choice, step) + log_go, log_stop)
            total = total + torch.where(came, log_step, 0.0)
            every.append(_Step(came, choice, log_stop, log_go))
            steps.append(step)
            mask = mask + step
        drawn = torch.stack(steps, -2)
        last = _Drawn(drawn, drawn._version, {"log_prob": total, "steps": every})
        self._last = last if torch.is_grad_enabled() else None
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        """`log p` of sequences, `(…)`, in nats; −∞ of one that cannot be drawn.

        Of the last draw, where a gradient may be needed, it is kept from the draw: the policy is
        not called again.
        """
        saved = self._kept_of(value, "log_prob")
        return self._along(value)[0] if saved is None else saved

    def divergence_along(self, value: Tensor, going: float = 0.5) -> Tensor:
        """The law's divergence from a law u that is independent of x, at the steps of sequences
        `(…, T, G)`, in nats, `(…)`:

            Σ_t KL( p(step t | j_1 … j_{t−1}) ‖ u(step t | j_1 … j_{t−1}) ).

        Under u it goes on with probability `going`, to any entry left alike. The mean over draws is
        `KL(p ‖ u)`, by the chain rule.
        """
        saved = self._kept_of(value, "steps")
        return self._apart(self._along(value)[1] if saved is None else saved, going)

    def _kept_of(self, value: Tensor, what: str) -> Any:
        """What was kept of the last draw, once; None of any other value."""
        last = self._last
        if last is None or value is not last.value or not torch.is_grad_enabled():
            self._last = None
            return None
        remembered = last.answers.pop(what, None)
        return remembered if value._version == last.version else None

    def _along(self, value: Tensor) -> tuple[Tensor, list[_Step]]:
        """:meth:`log_prob` of any sequences, and the law of each of their steps."""
        shape = torch.Size(broadcast_shape(self.batch_shape, value.shape[:-2]))
        value = value.expand(*shape, *self.event_shape)
        before = (value.cumsum(-2) - value).movedim(-2, 0)
        if self.start is not None:
            before = before + self.start
        chosen, taken = value.movedim(-2, 0), value.sum(-1).movedim(-1, 0)
        goes = taken == 1
        comes = goes.to(torch.uint8).cumprod(0)[:-1] == 1
        first, later = self._first(before[0]), self._next(before[1:], comes)
        log_alive = self.x.new_zeros(shape)
        total, every = torch.zeros_like(log_alive), []
        over = torch.zeros_like(log_alive, dtype=torch.bool)
        wrong = (taken > 1).any(0)
        for t in range(self.most):
            choice, stop = first if t == 0 else (later[0][t - 1], later[1][t - 1])
            log_stop, log_go, log_alive = self._stops(stop, log_alive, t)
            wrong = wrong | (goes[t] & over)
            log_step = torch.where(goes[t], _at(choice, chosen[t]) + log_go, log_stop)
            total = total + torch.where(over, 0.0, log_step)
            every.append(_Step(~over, choice, log_stop, log_go))
            over = over | ~goes[t]
        return total.masked_fill(wrong, -torch.inf), every

    def set_log_prob(self, mask: Tensor) -> Tensor:
        """`log p` of masks `(…, G)` in nats, summed over the orders in which they can be drawn.

        A recursion over subsets: `2^k` calls of the policy for the largest mask of k entries.

        Raises:
            ValueError: masks of more than 16 entries; a law with `explore_stop`.
        """
        chosen = mask if self.start is None else mask - self.start
        size = chosen.sum(-1)
        largest = int(size.max())
        if largest > 16:
            raise ValueError(f"a mask keeps {largest} entries: the orders of 16 at most are summed")
        # Entries of each mask, its own first: place p stands for its p-th kept entry.
        places = torch.argsort(chosen, dim=-1, descending=True, stable=True)[..., :largest]
        is_chosen = chosen.gather(-1, places)
        if self.explore_stop > 0.0:
            raise ValueError(
                "with explore_stop the stop depends on the order too; set_log_prob is of the law "
                "without it"
            )
        reached: dict[int, Tensor] = {0: torch.zeros_like(size)}
        final = torch.full_like(size, -torch.inf)
        for code in range(2**largest):
            bits = [p for p in range(largest) if code >> p & 1]
            part = self.mask_of(torch.zeros_like(chosen)[..., None, :])
            if bits:
                part = part.scatter_add(-1, places[..., bits], is_chosen[..., bits])
            choice, stop = self._answers(part, *self._known(part))
            full = (part == mask).all(-1) & (len(bits) == size)
            ends = torch.zeros_like(stop) if len(bits) == self.most else logsigmoid(stop)
            final = torch.where(full, reached[code] + ends, final)
            for p in set(range(largest)) - set(bits):
                step = choice.gather(-1, places[..., p : p + 1]).squeeze(-1) + logsigmoid(-stop)
                step = torch.where(is_chosen[..., p] == 1, reached[code] + step, -torch.inf)
                other = code | 1 << p
                before = reached.get(other)
                reached[other] = step if before is None else torch.logaddexp(before, step)
        return final.masked_fill(size > self.most, -torch.inf)

    def likeliest_order(self) -> Tensor:
        """The entries by the likeliest next choice at each step, without the stop, `batch_shape +
        (T,)`; beside a start as many steps as every row has entries left.

        Example:
            >>> law = SequentialMask(lambda kept, mask: (kept + mask.new_tensor([1.0, 3.0, 2.0]),
            ...     mask.sum(-1)), torch.zeros(1, 3), 3)
            >>> law.likeliest_order()
            tensor([[1, 2, 0]])
        """
        mask = self.mask_of(self.x.new_zeros((*self.batch_shape, 1, self.entries)))
        order: list[Tensor] = []
        for _ in range(min(self.most, int((mask == 0).sum(-1).min()))):
            order.append(self._answers(mask, *self._known(mask))[0].argmax(-1))
            mask = mask + one_hot(order[-1], self.entries).to(mask)
        return torch.stack(order, -1)

    def _answers(self, mask: Tensor, x: Tensor, *context: Tensor) -> tuple[Tensor, Tensor]:
        """`log π` and the stop's logit, of the policy's answers to what a mask keeps."""
        if self.explore == 1.0 and self.explore_stop == 1.0:
            # All is at random. A network that is not called has no gradient, where one of zeros
            # would let an optimizer's weight decay wear it away before it has learned anything.
            return self._choices(torch.zeros_like(mask), mask), torch.zeros_like(mask[..., 0])
        keep = mask if self.carry is None else self.carry(mask)
        logits, stop = self.policy(torch.where(keep == 1, x, 0.0), mask, *context)
        if self.start is not None:
            # Where nothing is left, it stops for certain.
            stop = stop.masked_fill((mask == 1).all(-1), -_LEAST)
        return self._choices(logits, mask), stop

    def _first(self, mask: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`_answers` before the first step; of one row where all rows are alike."""
        if self.start is not None or self.context is not None:
            return self._answers(mask, *self._known(mask))
        row = (1,) * (mask.dim() - 1)
        event = self.x.shape[self.x.dim() - self._event_dim :]
        return self._answers(mask.new_zeros((*row, self.entries)), self.x.new_zeros((*row, *event)))

    def _next(self, mask: Tensor, comes: Tensor) -> tuple[Tensor, Tensor]:
        """:meth:`_answers` of the rows that come to a step; zeros of others, where the host may
        choose rows."""
        known = self._known(mask)
        if not may_choose_rows(comes):
            return self._answers(mask, *known)
        at = comes.nonzero(as_tuple=True)
        of_rows = self._answers(mask[at], *(values[at] for values in known))
        choice, stop = (part.new_zeros((*comes.shape, *part.shape[1:])) for part in of_rows)
        return choice.index_put(at, of_rows[0]), stop.index_put(at, of_rows[1])

    def _known(self, mask: Tensor) -> list[Tensor]:
        """The rows of masks, and their context where there is one."""
        event = self.x.shape[self.x.dim() - self._event_dim :]
        x, context = self.x.expand(*mask.shape[:-1], *event), self.context
        return [x] if context is None else [x, context.expand(*mask.shape[:-1], -1)]

    def _choices(self, logits: Tensor, mask: Tensor) -> Tensor:
        """`log π` of the entries that are left, −∞ of others."""
        taken = mask == 1
        left = (~taken).sum(-1, keepdim=True)
        # Where nothing is left, a softmax would be NaN, and so its gradient.
        log_pi = logits.masked_fill(taken & (left > 0), -torch.inf).log_softmax(-1)
        if self.explore > 0.0:
            share = self.explore / left.clamp_min(1).to(logits.dtype)
            log_pi = ((1.0 - self.explore) * log_pi.exp() + share).log()
        return log_pi.masked_fill(taken, -torch.inf)

    def _stops(self, stop: Tensor, log_alive: Tensor, t: int) -> tuple[Tensor, Tensor, Tensor]:
        """`log` of the probabilities to stop at step t and to go on, and of the policy's own to
        come past it."""
        log_stop, log_go = logsigmoid(stop), logsigmoid(-stop)
        past = log_alive + log_go
        if self.explore_stop == 0.0:
            return log_stop, log_go, past
        share, counts = self.explore_stop, self.most + 1
        here = (1.0 - share) * log_alive.exp() + share * (counts - t) / counts
        stops = (1.0 - share) * (log_alive + log_stop).exp() + share / counts
        goes = (1.0 - share) * past.exp() + share * (counts - t - 1) / counts
        return (stops / here).log(), (goes / here).log(), past

    def _apart(self, steps: list[_Step], going: float) -> Tensor:
        """The sum of the steps' divergences: of the stop, and of the entry if there is one."""
        total = torch.zeros_like(steps[0].log_stop)
        for t, step in enumerate(steps):
            log_left: float | Tensor = math.log(self.entries - t)
            p, came = step.choice.exp(), step.came
            if self.start is not None:
                left = self.entries - t - self.start.sum(-1)
                came, log_left = came & (left > 0), left.clamp_min(1).log()
            plogp = torch.where(p > 0, p * step.choice.clamp_min(_LEAST), 0.0).sum(-1)
            goes = step.log_go - math.log(going) + plogp + log_left
            stops = step.log_stop - math.log1p(-going)
            divergence = step.log_stop.exp() * stops + step.log_go.exp() * goes
            total = total + torch.where(came, divergence, 0.0)
        return total


@dataclass(frozen=True)
class _Step:
    """Whether each sequence comes to a step, and that step's log-probabilities."""

    came: Tensor
    choice: Tensor
    log_stop: Tensor
    log_go: Tensor


@dataclass(frozen=True)
class _Drawn:
    """A draw, and the policy's answers to it."""

    value: Tensor
    version: int
    answers: dict[str, Any]


def _at(choice: Tensor, chosen: Tensor) -> Tensor:
    """`log π` of what is chosen; 0 where nothing is."""
    return torch.where(chosen == 1, choice, 0.0).sum(-1)


def may_choose_rows(which: Tensor) -> bool:
    """Whether a row number that depends on values is possible without a wait: on the CPU, outside
    `torch.vmap` and graphs."""
    plain = type(which) is Tensor and not (may_carry_gradient(which) or is_in_torch_dispatch_mode())
    return plain and which.device.type == "cpu" and which.dim() > 0


class ChosenMask(dist.Delta):
    """The mask of a sequence that was drawn before it, a Delta without a stated mean."""

    def __init__(self, mask: Tensor, validate_args: bool | None = None) -> None:
        super().__init__(mask, event_dim=1, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ChosenMask:
        new = self._get_checked_instance(ChosenMask, _instance)
        return super().expand(batch_shape, new)

    def divergence_along(self, value: Tensor, going: float = 0.5) -> Tensor:
        """Divergence of the mask given its sequence: 0, as nothing is left to choose, `(…)`."""
        return value.new_zeros(value.shape[:-1])

    @property
    def mean(self) -> Tensor:
        raise NotImplementedError("a mask's mean is over the sequences that it comes of")
