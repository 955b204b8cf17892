"""Hidden features of a mixture whose component is told by the kept ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

__all__ = ["ComponentDistribution", "ComponentFeatures"]


class ComponentFeatures(Protocol):
    """The features of a row under each of C components.

    `means` and `variances` are those of the features, shape `(C, D)`.
    """

    @property
    def means(self) -> Tensor: ...

    @property
    def variances(self) -> Tensor: ...

    def draw(self, component: Tensor) -> Tensor:
        """Features of rows, shape `(…, D)`.

        Args:
            component: whole numbers below C, of shape `(…, 1)`, one for a whole row, or `(…, D)`:
                then each entry is drawn on its own.
        """

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of each entry of `value` `(…, D)` under each component, shape
        `(…, D, C)`.

        Raises:
            NotImplementedError: where the features are points.
        """


class ComponentDistribution(TorchDistribution):
    """What each entry of a row would be, were it hidden, in a mixture of C components.

    With the log-weight `a_c` of a component and the evidence `e_dc` of feature d for it (its
    log-density, up to a constant), the components' scores are

        s_c = a_c + Σ_d z_d e_dc

    and their probabilities the softmax of the scores, or 1 at the first largest (`nearest`). Let S
    be the entries with `keep > 1/2` and H the others. A draw `u` has

    - `u_H` from one component with these probabilities: one draw of its features;
    - `u_d` for each d in S from a component of its own, told by all features but d: the score
      without `z_d e_dc`. A boolean `keep` has no use for it, and costs less.

    The component is chosen without a gradient; means and densities have theirs.

    Args:
        keep: boolean or in [0, 1], shape `(…, B, D)` or broadcastable to it.
        log_weights: `a`, shape `(C,)`.
        evidence: `e`, shape `(B, D, C)`.
        features: what each component's features are.
        nearest: give all probability to the largest score, the first of equal ones.

    Example:
        >>> from lexppl.models.imputers.mixture.mixture_means import FeatureMeans
        >>> means = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
        >>> evidence = torch.tensor([[[0.0, 0.0], [0.0, -99.0]]])
        >>> keep = torch.tensor([[False, True]])
        >>> ComponentDistribution(keep, torch.zeros(2), evidence, FeatureMeans(means)).mean[0, 0]
        tensor(1.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True
    support = constraints.real_vector

    def __init__(
        self,
        keep: Tensor,
        log_weights: Tensor,
        evidence: Tensor,
        features: ComponentFeatures,
        nearest: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        if keep.ndim < 2:
            keep = keep.unsqueeze(0)
        keep = keep.expand(*keep.shape[:-1], evidence.shape[-2])
        self._soft = keep.dtype != torch.bool
        self._keep = keep.to(evidence.dtype)
        self._kept = keep > 0.5 if self._soft else keep
        self._log_weights = log_weights
        self._evidence = evidence
        self._features = features
        self._nearest = nearest
        self._scores = log_weights + torch.einsum("...bd,bdc->...bc", self._keep, evidence)
        with torch.no_grad():
            self._joint_ends = self._probabilities(self._scores).cumsum(-1)
            # Of each entry's own component; None where nothing asks for it.
            self._own_ends: Tensor | None = None
            if self._soft:
                self._own_ends = self._probabilities(self._own_scores()).cumsum(-1)
        batch_shape = torch.broadcast_shapes(keep.shape[:-1], evidence.shape[:-2])
        super().__init__(batch_shape, keep.shape[-1:], validate_args=validate_args)

    def expand(
        self, batch_shape: torch.Size, _instance: ComponentDistribution | None = None
    ) -> ComponentDistribution:
        """The same distribution over more dimensions; the probabilities are shared."""
        new = self._get_checked_instance(ComponentDistribution, _instance)
        for name in (
            "_soft",
            "_keep",
            "_kept",
            "_log_weights",
            "_evidence",
            "_features",
            "_nearest",
            "_scores",
            "_joint_ends",
            "_own_ends",
        ):
            setattr(new, name, getattr(self, name))
        super(ComponentDistribution, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    @property
    def probabilities(self) -> Tensor:
        """Of the components, given what was kept: shape `(…, B, C)`."""
        return self._probabilities(self._scores)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, D)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        together = self._features.draw(_drawn(self._joint_ends, shape).unsqueeze(-1))
        if self._own_ends is None:
            return together
        alone = self._features.draw(_drawn(self._own_ends, shape + self.event_shape))
        return torch.where(self._kept, alone, together)

    @property
    def mean(self) -> Tensor:
        """The mean of each entry, shape `(…, B, D)`."""
        mean = (self._of_entries() * self._features.means.mT).sum(-1)
        return mean.expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """The variance of each entry, shape `(…, B, D)`."""
        means = self._features.means.mT
        probabilities = self._of_entries()
        mean = (probabilities * means).sum(-1, keepdim=True)
        spread = self._features.variances.mT + (means - mean) ** 2
        return (probabilities * spread).sum(-1).expand(self.batch_shape + self.event_shape)

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, shape `(…, B)`.

        Args:
            value: the draws, shape `(…, B, D)`; what stands outside `hidden` is not read.
            hidden: boolean; must hold on H, and may on entries of S.

        Raises:
            NotImplementedError: where the features of a component are points.
        """
        entries = self._features.log_prob(value)
        together = (hidden & ~self._kept).unsqueeze(-1)
        joint = self._scores.log_softmax(-1) + torch.where(together, entries, 0).sum(-2)
        log_prob = joint.logsumexp(-1)
        if self._soft:
            alone = (self._own_scores().log_softmax(-1) + entries).logsumexp(-1)
            log_prob = log_prob + torch.where(hidden & self._kept, alone, 0).sum(-1)
        return log_prob

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of a whole draw, which a boolean `keep` does not have.

        Raises:
            NotImplementedError: when `keep` was boolean, as the kept entries are then points; or
                where the features of a component are.
        """
        if not self._soft:
            raise NotImplementedError(
                "with a boolean keep the kept entries are points and have no density; use "
                "log_prob_hidden, or the log_prob of the Imputed distribution"
            )
        return self.log_prob_hidden(value, torch.ones_like(value, dtype=torch.bool))

    def _of_entries(self) -> Tensor:
        """The components' probabilities for each entry, `(…, B, D, C)`."""
        joint = self._probabilities(self._scores).unsqueeze(-2)
        if not self._soft:
            return joint
        own = self._probabilities(self._own_scores())
        return torch.where(self._kept.unsqueeze(-1), own, joint)

    def _probabilities(self, scores: Tensor) -> Tensor:
        if not self._nearest:
            return scores.softmax(-1)
        components = torch.arange(scores.shape[-1], device=scores.device)
        return (components == scores.argmax(-1, keepdim=True)).to(scores.dtype)

    def _own_scores(self) -> Tensor:
        """Scores without each entry's own evidence, `(…, B, D, C)`."""
        return self._log_weights + _sum_of_others(self._keep.unsqueeze(-1) * self._evidence)


def _sum_of_others(terms: Tensor) -> Tensor:
    """The sum over dimension -2 of all terms but each one.

    Subtracting each from the total would lose the digits of small sums beside one large term.
    """
    nothing = torch.zeros_like(terms[..., :1, :])
    before = torch.cat([nothing, terms[..., :-1, :].cumsum(-2)], -2)
    after = torch.cat([nothing, terms[..., 1:, :].flip(-2).cumsum(-2)], -2).flip(-2)
    return before + after


def _drawn(ends: Tensor, shape: torch.Size) -> Tensor:
    """Components of shape `shape`, by inversion of the cumulative probabilities."""
    uniform = torch.rand((*shape, 1), dtype=ends.dtype, device=ends.device)
    # Scaled by the last end, which rounding leaves near 1, so that no component without
    # probability is ever drawn.
    return (uniform * ends[..., -1:] >= ends).sum(-1)
