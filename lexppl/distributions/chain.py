"""Masks of which each entry depends on its neighbours: a binary Markov chain."""

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor
from torch.distributions import Bernoulli, Independent, constraints, register_kl
from torch.nn.functional import logsigmoid

from lexppl.distributions.computed_once import computed_once
from lexppl.distributions.log_space import log_add
from lexppl.distributions.masks import MaskDistribution, Vectors, all_of_sizes, checked_logits

Join = Callable[[Tensor, Tensor], Tensor]


def segments(steps: Tensor, join: Join) -> list[Tensor]:
    """Scores of ever longer segments, from the steps ``(2, 2, *batch, G)`` to one ``(…, 1)``;
    `join` is ``log_add`` or, for the best path, ``torch.maximum``."""
    levels = [steps]
    while (n := levels[-1].shape[-1]) > 1:
        pairs, last = levels[-1].split([n - n % 2, n % 2], -1)
        first, second = pairs.unflatten(-1, (n // 2, 2)).unbind(-1)
        through = [first[:, m].unsqueeze(1) + second[m].unsqueeze(0) for m in (0, 1)]
        levels.append(torch.cat([join(*through), last], -1))
    return levels


def log_total(levels: list[Tensor]) -> Tensor:
    """log Σ over all paths, of the batch's shape; the state before the first step is 0."""
    off, on = levels[-1][0, ..., 0].unbind(0)
    return log_add(off, on)


@torch.no_grad()
def path(levels: list[Tensor], choose: Callable[[Tensor], Tensor], lead: tuple[int, ...]) -> Tensor:
    """States ``(*lead, G)`` of a path, as booleans, by a choice from the log-odds of state 1."""
    top = levels[-1][0, ..., 0]
    after = choose((top[1] - top[0]).unsqueeze(-1).expand(*lead, 1))
    for level in reversed(levels[:-1]):
        n = level.shape[-1]
        pairs = level[..., : n - n % 2].unflatten(-1, (n // 2, 2))
        first, second = pairs[..., 0], pairs[..., 1]
        # By the state before and after the two segments.
        odds = (first[:, 1].unsqueeze(1) + second[1]) - (first[:, 0].unsqueeze(1) + second[0])
        before = torch.cat([torch.zeros_like(after[..., :1]), after[..., :-1]], -1)
        before, end = before[..., : n // 2], after[..., : n // 2]
        of_before = [torch.where(end, odds[i, 1], odds[i, 0]) for i in (0, 1)]
        between = choose(torch.where(before, of_before[1], of_before[0]))
        both = torch.stack([between, end], -1).flatten(-2)
        after = torch.cat([both, after[..., n // 2 :]], -1)
    return after


def drawn(log_odds: Tensor) -> Tensor:
    return torch.rand_like(log_odds) < log_odds.sigmoid()


def likelier(log_odds: Tensor) -> Tensor:
    return log_odds > 0


class ChainMask(MaskDistribution):
    r"""Masks of G entries in a row whose neighbours tend to be alike: a linear-chain CRF over z.

    .. math:: p(z) = \frac1Z \exp\Big(\sum_{g=1}^{G} u_g z_g
              - \sum_{g=2}^{G} J_g \, |z_g - z_{g-1}|\Big)

    with logits u and couplings J, the nats of a switch between kept and hidden: positive ones give
    runs, negative ones entries that alternate. ``log_prob``, ``mean``, ``switches`` (P(z_g ≠
    z_{g−1})), ``variance``, ``entropy`` and draws are exact (forward–backward; forward filtering,
    backward sampling), in log2 G rounds, and differentiable any number of times; ``mode`` is
    Viterbi's. Scores are relative to the mode's, so that float32 serves for ±50 at thousands of
    entries.

    Args:
        logits: u, finite, ``(*batch, G)``.
        coupling: J, finite; a number or what broadcasts with ``(*batch, G − 1)``.
        validate_args: as in every torch distribution.

    Raises:
        ValueError: logits without a dimension or entries; a coupling that does not broadcast;
            either not finite (when validated).

    References:
        Lafferty, McCallum and Pereira (2001), "Conditional random fields", ICML;
        Frühwirth-Schnatter (1994), "Data augmentation and dynamic linear models", J. Time Series
        Analysis 15, for the draws.

    Example:
        >>> chain = ChainMask(torch.zeros(3), coupling=2.0)
        >>> chain.log_prob(torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0]])).exp()
        tensor([0.3879, 0.0071])
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "logits": Vectors(constraints.real),
        "coupling": constraints.dependent,
    }

    def __init__(
        self, logits: Tensor, coupling: float | Tensor, validate_args: bool | None = None
    ) -> None:
        size = checked_logits(logits)
        if size < 1:
            raise ValueError("logits must have at least one mask entry; they have none")
        if isinstance(coupling, Tensor):
            coupling = coupling.to(logits)
        else:
            coupling = logits.new_full((), coupling)
        batch = _batch_of(logits, coupling)
        self._logits = logits.expand(*batch, size)
        self._coupling = coupling.expand(*batch, size - 1)
        super().__init__(batch, torch.Size((size,)), validate_args, "logits", "coupling")

    @property
    def logits(self) -> Tensor:
        """u, ``(*batch, G)``."""
        return self._logits.expand(self._batch_shape + self._event_shape)

    @property
    def coupling(self) -> Tensor:
        """J, ``(*batch, G − 1)``."""
        return self._coupling.expand(*self._batch_shape, -1)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        return Vectors(constraints.boolean)

    def uniform(self) -> "ChainMask":
        """The distribution of the same shapes under which all masks are alike."""
        logits, coupling = torch.zeros_like(self._logits), torch.zeros_like(self._coupling)
        return ChainMask(logits, coupling, validate_args=False).expand(self._batch_shape)

    def _log_prob(self, value: Tensor) -> Tensor:
        return self._score(value, switches_of(value)) - self._log_total()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Exact draws, ``sample_shape + batch_shape + (G,)``."""
        shape = self._extended_shape(sample_shape)
        return path(self._sums(), drawn, shape[:-1]).to(self._logits.dtype)

    @property
    def mean(self) -> Tensor:
        """E[z], ``(*batch, G)``."""
        return (self._mode() + self._moments()[0]).expand(self._batch_shape + self._event_shape)

    @property
    def variance(self) -> Tensor:
        """E[z] (1 − E[z]), ``(*batch, G)``."""
        unlike = self._moments()[0].abs()
        return (unlike * (1 - unlike)).expand(self._batch_shape + self._event_shape)

    @property
    def switches(self) -> Tensor:
        """P(z_g ≠ z_{g−1}), ``(*batch, G − 1)``."""
        switches = switches_of(self._mode()) + self._moments()[1]
        return switches.expand(*self._batch_shape, -1)

    @property
    def mode(self) -> Tensor:
        """A likeliest mask, ``(*batch, G)``."""
        return self._mode().expand(self._batch_shape + self._event_shape)

    def entropy(self) -> Tensor:
        """−E[log p(z)] in nats, of the batch's shape."""
        return self._entropy().expand(self._batch_shape)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All 2^G masks, ``(2^G, *batch, G)``; ``batch`` all ones for ``expand=False``; at most
        2^20."""
        size = self._event_shape[0]
        masks = all_of_sizes("ChainMask", torch.ones(size + 1, dtype=torch.bool), self.logits)
        return self._listed(masks, expand)

    @computed_once
    def _mode(self) -> Tensor:
        with torch.no_grad():
            # Relative to each entry's likelier value, so that sums stay small.
            near = (self._logits > 0).to(self._logits.dtype)
            steps = _steps(self._logits, self._coupling, near)
            best = path(segments(steps, torch.maximum), likelier, self._logits.shape[:-1])
            return best.to(self._logits.dtype)

    def _score(self, value: Tensor, switches: Tensor) -> Tensor:
        """Σ u z − Σ J |z_g − z_{g−1}| of a mask, less that of the mode."""
        mode = self._mode()
        unlike = (self._logits * (value - mode)).sum(-1)
        return unlike - (self._coupling * (switches - switches_of(mode))).sum(-1)

    @computed_once
    def _sums(self) -> list[Tensor]:
        return segments(_steps(self._logits, self._coupling, self._mode()), log_add)

    @computed_once
    def _log_total(self) -> Tensor:
        """log Z, less the mode's score."""
        return log_total(self._sums())

    @computed_once
    def _moments(self) -> tuple[Tensor, Tensor]:
        """E[z] and E|z_g − z_{g−1}|, less those of the mode: the derivatives of log Z."""
        mode = self._mode()

        def total(logits: Tensor, coupling: Tensor) -> Tensor:
            return log_total(segments(_steps(logits, coupling, mode), log_add))

        value, pull_back, *_ = torch.func.vjp(total, self._logits, self._coupling)
        by_logits, by_coupling = pull_back(torch.ones_like(value))
        return by_logits, -by_coupling

    @computed_once
    def _entropy(self) -> Tensor:
        unlike, switches = self._moments()
        score = (self._logits * unlike).sum(-1) - (self._coupling * switches).sum(-1)
        return self._log_total() - score


def switches_of(mask: Tensor) -> Tensor:
    """|z_g − z_{g−1}|, ``(…, G − 1)``."""
    return mask.diff(dim=-1).abs()


def _steps(logits: Tensor, coupling: Tensor, origin: Tensor) -> Tensor:
    """Scores of the steps by the states before and after, ``(2, 2, *batch, G)``, less those of the
    mask ``origin``."""
    to = [logits * (state - origin) for state in (0, 1)]
    paid = switches_of(origin)
    first = torch.zeros_like(logits[..., :1])
    scores = []
    for before in (0, 1):
        for after in (0, 1):
            cost = coupling * (abs(after - before) - paid)
            scores.append(to[after] - torch.cat([first, cost], -1))
    return torch.stack(scores).unflatten(0, (2, 2))


def _batch_of(logits: Tensor, coupling: Tensor) -> torch.Size:
    """The batch shape of logits `(*batch, G)` and couplings, which must broadcast."""
    size = logits.shape[-1]
    message = (
        f"coupling must be a number or broadcast with (*batch, G - 1) = "
        f"{(*logits.shape[:-1], size - 1)}; its shape is {tuple(coupling.shape)}"
    )
    if coupling.dim() and coupling.shape[-1] not in (1, size - 1):
        raise ValueError(message)
    try:
        return torch.Size(broadcast_shape(logits.shape[:-1], coupling.shape[:-1]))
    except ValueError:
        raise ValueError(message) from None


@register_kl(ChainMask, ChainMask)
def _kl_chain(p: ChainMask, q: ChainMask) -> Tensor:
    """E_p[log p(z)] − E_p[log q(z)], exact."""
    return -p.entropy() - (q._score(p.mean, p.switches) - q._log_total())


@register_kl(ChainMask, Independent)
def _kl_independent(p: ChainMask, q: Independent) -> Tensor:
    """From p's marginals, to independent Bernoullis."""
    base = q.base_dist
    if not isinstance(base, Bernoulli) or q.event_shape != p.event_shape:
        raise NotImplementedError
    on = p.mean
    cross = on * logsigmoid(base.logits) + (1 - on) * logsigmoid(-base.logits)
    divergence = -p.entropy() - cross.sum(-1)
    # Of a logit that is infinite, and an entry that never has the other value.
    return torch.where(divergence.isnan(), torch.full_like(divergence, math.inf), divergence)
