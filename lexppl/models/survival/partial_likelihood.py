"""Cox's partial likelihood as a distribution of the rows of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor

from lexppl.models.survival.observed_times import survival_times
from lexppl.models.survival.risk_sets import RiskSets, Ties, fitted_hazard

NO_MEAN = (
    "a survival time has no mean that rows followed for a while could tell: ask "
    "lexppl.evaluation for predict_survival, or log_hazard_ratio"
)


class PartialLikelihood(TorchDistribution):
    r"""Survival times under a hazard `h₀(t) exp f_n`, whose baseline is fitted to the batch.

    The value of a row is its time t, whether its event happened then (1) or it was censored (0),
    and, where `stratified`, the number of its stratum. With `f` the log hazard ratios, the
    log-density of row n is

        ℓ_n(f) = δ_n (f_n + log ĥ(t_n)) − exp(f_n) Ĥ(t_n) + δ_n,

    with ĥ the jumps of the baseline hazard that the B rows of the batch are likeliest under
    (:func:`lexppl.models.survival.risk_sets.fitted_hazard`). Summed over the rows it is the log
    partial likelihood (Cox 1972, 1975), of ties by Efron's or Breslow's formula,

        Σ_n ℓ_n = Σ_t [ Σ_{i∈D(t)} f_i − Σ_l log( Σ_{j∈R(t)} e^{f_j} − c_l Σ_{j∈D(t)} e^{f_j} ) ],

    with gradient and all derivatives, as the partial likelihood is the likelihood of both with the
    baseline at its maximum (Johansen 1983). Rows are thereby on their own given the baseline, and
    each can have a log of its own.

    **Particles.** Dimensions left of the rows are particles, and all of them share ĥ: that of the
    mean hazard ratio of each row over its M particles. The nested bound of L masks and K
    imputations is then, for every L and K, a bound on the partial likelihood of all rows' masks
    together,

        E[ Σ_n log 1/(LK) Σ_{l,k} exp ℓ_n(f_{lk}) ]  ≤  log E_{z_1 … z_B, x̃_1 … x̃_B}[ PL(f) ],

    as the left side is, under any one baseline, at most the log of the mean of PL over all ways to
    choose a particle for each row. With `masks=1` ĥ is where that bound has its maximum; with more
    it is so but for the weights of the particles.

    A mask moves the terms of other rows through ĥ alone, whose own gradient is zero at its maximum:
    a score-function gradient that judges a mask by its row's term, as
    :class:`lexppl.inference.LeaveOneOut`'s does, has a bias of order 1/B for it.

    **Mini-batches.** Risk sets are those of the batch: what a step maximises is the partial
    likelihood of a random part of the rows, whose expectation has its maximum at the same f if the
    hazards are proportional, and is another function where they are not (Kvamme, Borgan & Scheel
    2019). A stratum of few rows in a batch says little; take batches as large as can be.
    Held-out rows are compared with each other.

    A draw is the time at which the cumulative baseline hazard reaches that of the event, `E/e^f`
    with E exponential, and no row is censored: times have the order that the model gives them, and
    no unit. After :func:`lexppl.evaluation.with_baseline` they have that of the data.

    Args:
        log_hazard: f, `(…, B)`.
        ties: "efron" or "breslow".
        stratified: whether rows have strata, each with a baseline of its own.
        weights: how often each row counts in the risk sets, `(B,)`; None for once. How often its
            own ℓ counts is for the program to say.
        components: f of several models, `(C, …, B)`, in place of `log_hazard`: the density is
            their mean.

    Example:
        >>> rows = torch.tensor([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
        >>> round(float(PartialLikelihood(torch.zeros(3)).log_prob(rows).sum()), 4)
        -1.0986
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}
    support = survival_times
    has_rsample = False
    couples_rows = True
    """Whether what a row's density is depends on the other rows of its batch."""

    def __init__(
        self,
        log_hazard: Tensor | None = None,
        ties: Ties = "efron",
        stratified: bool = False,
        weights: Tensor | None = None,
        *,
        components: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if components is None:
            if log_hazard is None:
                raise ValueError("give log_hazard (…, B), or components (C, …, B)")
            components = log_hazard.unsqueeze(0)
        self.components = components
        self.ties, self.stratified, self.weights = ties, stratified, weights
        event = torch.Size([3 if stratified else 2])
        super().__init__(components.shape[1:], event, validate_args=validate_args)

    @property
    def log_hazard(self) -> Tensor:
        """f, `(…, B)`; of several models the log of their mean hazard ratio."""
        return _log_mean(self.components)

    @property
    def mean(self) -> Tensor:
        """Not told.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(NO_MEAN)

    def expand(self, batch_shape: Any, _instance: Any = None) -> PartialLikelihood:
        shape = (len(self.components), *torch.Size(batch_shape))
        components = _aligned(self.components, len(shape)).expand(shape)
        return self._like(components)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        time, event = value[..., 0], value[..., 1].to(self.components.dtype)
        if time.dim() > 1:
            raise ValueError(
                "the rows of a partial likelihood are observed alike in all particles, shape "
                f"(B, {self.event_shape[0]}); the value has shape {tuple(value.shape)}"
            )
        stratum = value[..., 2] if self.stratified else None
        every = self.components.reshape(-1, self.components.shape[-1])
        hazard = fitted_hazard(
            _log_mean(every), RiskSets.of(time, event, stratum), self.ties, self.weights
        )
        died = event * (self.components + hazard.log_increment + 1.0)
        return _log_mean(died - (self.components + hazard.log_exposure).exp())

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            time = _waited(self.components, torch.Size(sample_shape))
            columns = [time, torch.ones_like(time)]
            if self.stratified:
                columns.append(torch.zeros_like(time))
            return torch.stack(columns, -1)

    @classmethod
    def mean_of(cls, distributions: Sequence[PartialLikelihood]) -> PartialLikelihood:
        """The mean of several models' densities, under one baseline."""
        return distributions[0]._like(torch.cat([d.components for d in distributions]))

    @classmethod
    def joined(cls, distributions: Sequence[PartialLikelihood]) -> PartialLikelihood:
        """The rows of several models, block after block, in common risk sets."""
        return distributions[0]._like(torch.cat([d.components for d in distributions], -1))

    def _like(self, components: Tensor) -> PartialLikelihood:
        return type(self)(
            None,
            self.ties,
            self.stratified,
            self.weights,
            components=components,
            validate_args=False,
        )


def _log_mean(value: Tensor) -> Tensor:
    """`log 1/C Σ exp` over the first dimension."""
    if len(value) == 1:
        return value[0]
    return value.logsumexp(0) - math.log(len(value))


def _aligned(components: Tensor, dims: int) -> Tensor:
    """Components `(C, …)` with as many dimensions, new ones after the first."""
    shape = (len(components), *(1,) * (dims - components.dim()), *components.shape[1:])
    return components.reshape(shape)


def _waited(components: Tensor, sample_shape: torch.Size) -> Tensor:
    """The cumulative baseline hazard at the event: `E/e^f` of a component at random."""
    shape = (*sample_shape, *components.shape[1:])
    which = torch.randint(len(components), shape, device=components.device)
    chosen = components.expand(len(components), *components.shape[1:])
    full = chosen.reshape(len(components), *(1,) * len(sample_shape), *components.shape[1:])
    log_hazard = full.expand(len(components), *shape).gather(0, which.unsqueeze(0)).squeeze(0)
    return torch.empty_like(log_hazard).exponential_() / log_hazard.exp()
