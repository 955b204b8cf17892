"""Cox's proportional hazards as the likelihood of a predictor."""

from __future__ import annotations

from typing import get_args

from pyro.distributions import TorchDistribution
from torch import Tensor

from lexppl.effects import row_weights
from lexppl.models.likelihoods import Likelihood, count_and_first
from lexppl.models.survival.baseline import BaselineHazard
from lexppl.models.survival.partial_likelihood import PartialLikelihood
from lexppl.models.survival.proportional_hazards import ProportionalHazards
from lexppl.models.survival.risk_sets import Ties


class CoxLikelihood(Likelihood):
    r"""The hazard of an event at time t is `h₀(t) exp f`, from one output f, the log hazard ratio.

    y is `(N, 2)`, the time and whether the event happened then (1) or the row was censored (0), or
    `(N, 3)` with the number of the row's stratum besides. Without a baseline, as in a fit, rows are
    judged by the partial likelihood among the rows of their batch
    (:class:`~lexppl.models.survival.PartialLikelihood`, which says what is maximised with several
    masks and in mini-batches). :func:`lexppl.evaluation.with_baseline` gives a fitted model its
    baseline, with which each row has a density, and survival curves, of its own
    (:class:`~lexppl.models.survival.ProportionalHazards`).

    A constant added to f changes nothing but the baseline.

    Args:
        ties: how events at the same time share a risk set: "efron" or "breslow".
        stratified: whether each stratum has a baseline of its own, f being common to them.
        baseline: the hazard of `f = 0`, or None.

    Raises:
        ValueError: ties of another name.

    Source:
        Cox, D. R. Regression models and life-tables. JRSS B 34, 1972. Efron, B. The efficiency of
        Cox's likelihood function for censored data. JASA 72, 1977. Kvamme, Borgan, Scheel.
        Time-to-event prediction with neural networks and Cox regression. JMLR 20, 2019.

    Example:
        >>> import torch
        >>> rows = torch.tensor([[5.0, 1.0], [8.0, 0.0], [3.0, 1.0]])
        >>> CoxLikelihood()(torch.zeros(3, 1)).log_prob(rows).shape
        torch.Size([3])
        >>> CoxLikelihood().check_responses(torch.tensor([[5.0, 1.0], [-8.0, 0.0]]))
        Traceback (most recent call last):
        ...
        ValueError: times of y must be positive and finite; 1 of 2 are not, the first in row 1: -8
    """

    discrete = False
    responses = "survival times, and whether the event happened then"
    outputs = 1

    def __init__(
        self,
        ties: Ties = "efron",
        stratified: bool = False,
        baseline: BaselineHazard | None = None,
    ) -> None:
        super().__init__()
        if ties not in get_args(Ties):
            raise ValueError(f"ties must be one of {get_args(Ties)}; it is {ties!r}")
        self.ties: Ties = ties
        self.stratified = bool(stratified)
        self.baseline = baseline

    def forward(self, outputs: Tensor) -> TorchDistribution:
        log_hazard = outputs.squeeze(-1)
        if self.baseline is not None:
            return ProportionalHazards(log_hazard, self.baseline, self.stratified)
        return PartialLikelihood(log_hazard, self.ties, self.stratified, row_weights())

    def check_responses(self, y: Tensor) -> None:
        """Refuse what is no survival time.

        Args:
            y: `(N, 2)`, or `(N, 3)` with strata.

        Raises:
            ValueError: another shape, times that are not positive and finite, events other than 0
                and 1, no event at all, a stratum that the baseline does not know.
        """
        columns = 3 if self.stratified else 2
        if y.dim() != 2 or y.shape[1] != columns:
            named = "time, event, stratum" if self.stratified else "time, event"
            raise ValueError(
                f"y must have shape (N, {columns}), columns {named}, as stratified is "
                f"{self.stratified}; it has shape {tuple(y.shape)}"
            )
        time, event = y[:, 0], y[:, 1]
        _refuse("times of y must be positive and finite", time, (time > 0) & time.isfinite())
        _refuse("events of y must be 1, or 0 of a censored row", event, (event == 0) | (event == 1))
        if self.stratified:
            stratum = y[:, 2]
            _refuse("strata of y must be finite numbers", stratum, stratum.isfinite())
            if self.baseline is not None:
                known = self.baseline.knows(stratum)
                _refuse("strata of y must be those of the baseline", stratum, known)
        if self.baseline is None and not bool((event == 1).any()):
            raise ValueError(
                f"y has no event: all {len(y)} rows are censored, and no hazard can be compared"
            )


def _refuse(expected: str, values: Tensor, fine: Tensor) -> None:
    if found := count_and_first(~fine):
        count, row = found
        raise ValueError(
            f"{expected}; {count} of {len(values)} are not, the first in row {row}: "
            f"{float(values[row]):g}"
        )
