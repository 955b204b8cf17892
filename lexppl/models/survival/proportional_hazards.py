"""Survival times under proportional hazards with a known baseline."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor

from lexppl.models.survival.baseline import BaselineHazard
from lexppl.models.survival.mean_hazards import MeanHazards, log_mean


class ProportionalHazards(MeanHazards):
    r"""Times t under the hazard `h₀(t) exp f`, seen (1) or censored (0):

        log p(t, δ | f) = δ (f + log h₀(t)) − e^f H₀(t),

    the density of the time of an event, in the reciprocal of its unit, and the probability of
    having none before a censoring that says nothing of it. The value of a row is (t, δ), or
    (t, δ, stratum).

    Draws are times of events, censored at the end of the rows that the baseline is of.

    Args:
        log_hazard: f, `(…, B)`.
        baseline: h₀ and H₀.
        stratified: whether rows have strata; of a draw it is the first.
        components: f of several models, `(C, …, B)`, whose densities are averaged, in place of
            `log_hazard`.

    Example:
        >>> baseline = BaselineHazard([1.0, 2.0], [0.5, 1.0])
        >>> survived = torch.tensor([[2.0, 0.0]])
        >>> ProportionalHazards(torch.zeros(1), baseline).log_prob(survived)
        tensor([-1.])
    """

    couples_rows = False

    def __init__(
        self,
        log_hazard: Tensor | None,
        baseline: BaselineHazard,
        stratified: bool = False,
        *,
        components: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self.baseline = baseline
        super().__init__(log_hazard, stratified, components, validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        value = value.to(self.components.dtype)
        time, event = value[..., 0], value[..., 1]
        stratum = value[..., 2] if self.stratified else None
        log_hazard = self.baseline.log_hazard_at(time, stratum)
        cumulative = self.baseline.cumulative_at(time, stratum)
        died = torch.where(event > 0.5, self.components + log_hazard, 0.0)
        return log_mean(died - self.components.exp() * cumulative)

    def survival(self, time: Tensor, stratum: Tensor | None = None) -> Tensor:
        """`S(t | f) = exp(−e^f H₀(t))`, of several models their mean.

        Args:
            time: `(T,)`.
            stratum: of each row, `(B,)`, or None.

        Returns:
            `(T, …, B)`.
        """
        each = time.unsqueeze(-1).expand(len(time), self.batch_shape[-1])
        reached = self.baseline.cumulative_at(each, stratum)
        between = (1,) * (len(self.batch_shape) - 1)
        reached = reached.reshape(len(time), 1, *between, reached.shape[-1])
        return (-self.components.exp() * reached).exp().mean(1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            reached = self.baseline.time_of(self._waited(torch.Size(sample_shape)))
            end = self.baseline.last[0]
            event = (reached <= end).to(reached.dtype)
            columns = [torch.minimum(reached, end), event]
            if self.stratified:
                columns.append(self.baseline.strata[0].expand(reached.shape))
            return torch.stack(columns, -1)

    def _like(self, components: Tensor) -> Self:
        return type(self)(
            None, self.baseline, self.stratified, components=components, validate_args=False
        )
