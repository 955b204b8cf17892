"""Hidden features of a mixture of C components, of which the kept features choose one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.distributions.gradients import may_carry_gradient
from lexppl.models.imputers.imputed import POINTS, HiddenFeatures


class ComponentFeatures:
    """The features of a row under each of C components; images are flat here.

    A subclass has the features' `means` and `variances`, `(C, D)`, and draws; without a density it
    need not define :meth:`log_prob`.
    """

    means: Any
    variances: Any

    def draw(self, component: Tensor) -> Tensor:
        """Features of rows, shape `(…, D)`.

        Args:
            component: whole numbers below C, of shape `(…, 1)`, one for a whole row, or `(…, D)`:
                then each entry is drawn on its own.
        """
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of each feature of `value` `(…, D)` under each component, `(…, D, C)`.

        Raises:
            NotImplementedError: where the features are points.
        """
        raise NotImplementedError(
            "a component's features are points here and have no density; objectives that propose "
            "x_imputed from the model do not need it, others can use a GaussianMixtureImputer or a "
            "ConditionalGaussianImputer"
        )


def at_component(values: Tensor, component: Tensor) -> Tensor:
    """Of `(C, D)` values those of each entry's component, `(…, D)`."""
    return values[component, torch.arange(values.shape[-1], device=values.device)]


@dataclass(frozen=True)
class IndependentFeatures(ComponentFeatures):
    """Independent features of one family, such as `x_d | c ~ N(μ_cd, σ_cd²)`.

    Args:
        family: of distributions with a location and a scale.
        loc, scale: of each component and feature, `(C, D)`.

    Example:
        >>> from torch.distributions import Normal
        >>> features = IndependentFeatures(Normal, torch.zeros(3, 2), torch.ones(3, 2))
        >>> features.draw(torch.tensor([[0], [2], [1], [0]])).shape
        torch.Size([4, 2])
        >>> features.log_prob(torch.zeros(5, 2)).shape
        torch.Size([5, 2, 3])
    """

    family: Any
    loc: Tensor
    scale: Tensor

    @property
    def means(self) -> Tensor:
        mean: Tensor = self.family(self.loc, self.scale, validate_args=False).mean
        return mean

    @property
    def variances(self) -> Tensor:
        variance: Tensor = self.family(self.loc, self.scale, validate_args=False).variance
        return variance

    def draw(self, component: Tensor) -> Tensor:
        own = (at_component(each, component) for each in (self.loc, self.scale))
        distribution = self.family(*own, validate_args=False)
        draw = distribution.rsample if distribution.has_rsample else distribution.sample
        features: Tensor = draw()
        return features

    def log_prob(self, value: Tensor) -> Tensor:
        distribution = self.family(self.loc.mT, self.scale.mT, validate_args=False)
        log_prob: Tensor = distribution.log_prob(value.unsqueeze(-1))
        return log_prob


@dataclass(frozen=True)
class FeatureMeans(ComponentFeatures):
    """The component's means themselves, `(C, D)`.

    Example:
        >>> FeatureMeans(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).draw(torch.tensor([[1, 0]]))
        tensor([[3., 2.]])
    """

    means: Tensor

    @property
    def variances(self) -> Tensor:
        return torch.zeros_like(self.means)

    def draw(self, component: Tensor) -> Tensor:
        return at_component(self.means, component)


class ComponentDistribution(HiddenFeatures):
    """What each entry of a row would be, were it hidden, in a mixture of C components.

    With the log-weight `a_c` of a component and the evidence `e_dc` of feature d for it (its
    log-density, up to a constant), the components' scores are

        s_c = a_c + Σ_d z_d e_dc

    and their probabilities the softmax of the scores, or 1 at the first largest (`nearest`). Let S
    be the entries with `keep > 1/2` and H the others. A draw `u` has

    - `u_H` from one component with these probabilities: one draw of its features;
    - `u_d` for each d in S from a component of its own, by all features but d: the score minus
      `z_d e_dc`. A boolean `keep` has no use for it, and costs less.

    The component is chosen without a gradient; means and densities have theirs.

    Rows may be images: D is the number of their entries.

    Args:
        keep: boolean or in [0, 1], shape `(…, B, *event)` or broadcastable to it.
        log_weights: `a`, shape `(C,)`.
        evidence: `e` of the rows, shape `(B, D, C)`.
        features: what each component's features are.
        event_shape: of a row, D entries in all; `(D,)` if None.
        nearest: give all probability to the largest score, the first of equal ones.

    Example:
        >>> means = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
        >>> evidence = -(torch.tensor([[[0.0], [2.0]]]) - means.mT) ** 2
        >>> keep = torch.tensor([[False, True]])
        >>> ComponentDistribution(keep, torch.zeros(2), evidence, FeatureMeans(means)).mean[0, 0]
        tensor(1.0000)
    """

    def __init__(
        self,
        keep: Tensor,
        log_weights: Tensor,
        evidence: Tensor,
        features: ComponentFeatures,
        event_shape: Sequence[int] | None = None,
        nearest: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        event = evidence.shape[-2:-1] if event_shape is None else torch.Size(event_shape)
        if keep.ndim <= len(event):
            keep = keep.unsqueeze(0)
        keep = keep.expand(*keep.shape[: -len(event)], *event).flatten(-len(event))
        self._soft = keep.dtype != torch.bool
        self._keep = keep.to(evidence.dtype)
        self._kept = keep > 0.5 if self._soft else keep
        self._log_weights, self._features, self._nearest = log_weights, features, nearest
        if not nearest:
            # A feature far from all components would drown the digits of the others' differences.
            evidence = evidence - evidence.detach().amax(-1, keepdim=True)
        self._evidence = evidence
        batch_shape = torch.Size(broadcast_shape(keep.shape[:-1], evidence.shape[:-2]))
        self._flat_shape = batch_shape + keep.shape[-1:]
        with torch.no_grad():
            self._joint_ends = self._probabilities(self._scores()).cumsum(-1)
        super().__init__(batch_shape, event, validate_args=validate_args)

    @property
    def probabilities(self) -> Tensor:
        """Of the components, given what was kept: shape `(…, B, C)`."""
        return self._probabilities(self._scores())

    @property
    def log_probabilities(self) -> Tensor:
        """Their logarithms, which those near 0 have too; not of the nearest."""
        return self._scores().log_softmax(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws of shape `(*sample_shape, …, B, *event)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        uniform = self._uniform(shape)
        drawn = self._features.draw(_drawn(self._joint_ends, uniform).unsqueeze(-1))
        if self._reads_own():
            own = self._own_drawn(shape + self._flat_shape[-1:])
            drawn = torch.where(self._kept, self._features.draw(own), drawn)
        return drawn.reshape(shape + self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each entry, shape `(…, B, *event)`."""
        return self._unflat(self._flat_mean())

    @property
    def variance(self) -> Tensor:
        """The variance of each entry, shape `(…, B, *event)`."""
        means, variances = self._features.means.mT, self._features.variances.mT
        within = variances + (means - self._flat_mean().unsqueeze(-1)) ** 2
        return self._unflat((self._of_entries() * within).sum(-1))

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, shape `(…, B)`.

        Args:
            value: the draws, shape `(…, B, *event)`; what stands outside `hidden` is not read.
            hidden: boolean; must hold on H, and may on entries of S.

        Raises:
            NotImplementedError: where the features of a component are points.
        """
        value, hidden = self._flat(value), self._flat(hidden)
        together, apart = hidden & ~self._kept, hidden & self._kept
        each = self._features.log_prob(value)
        joint = self.log_probabilities + torch.where(together.unsqueeze(-1), each, 0).sum(-2)
        log_prob = joint.logsumexp(-1)
        if self._soft:
            alone = (self._own_scores().log_softmax(-1) + each).logsumexp(-1)
            log_prob = log_prob + torch.where(apart, alone, 0).sum(-1)
        return log_prob

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of a whole draw, which a boolean `keep` does not have.

        Raises:
            NotImplementedError: when `keep` was boolean, as the kept entries are then points; or
                where the features of a component are.
        """
        if not self._soft:
            raise NotImplementedError(POINTS)
        return super().log_prob(value)

    def _flat(self, value: Tensor) -> Tensor:
        events = len(self.event_shape)
        return value.expand(*value.shape[:-events], *self.event_shape).flatten(-events)

    def _unflat(self, value: Tensor) -> Tensor:
        shape = self.batch_shape + self._flat_shape[-1:]
        return value.expand(shape).reshape(self.batch_shape + self.event_shape)

    def _scores(self) -> Tensor:
        """Of the components, `(…, B, C)`."""
        return self._log_weights + torch.einsum("...bd,bdc->...bc", self._keep, self._evidence)

    def _own_scores(self) -> Tensor:
        """Scores without each entry's own evidence, `(…, B, D, C)`."""
        keep, evidence = self._keep, self._evidence
        # In double precision the difference keeps the digits of small sums beside a large term.
        precise = keep.dtype if keep.device.type == "mps" else torch.float64
        total = torch.einsum("...bd,bdc->...bc", keep.to(precise), evidence.to(precise))
        own = keep.unsqueeze(-1) * evidence
        return self._log_weights + (total.unsqueeze(-2) - own).to(keep.dtype)

    def _probabilities(self, scores: Tensor) -> Tensor:
        if not self._nearest:
            return scores.softmax(-1)
        components = torch.arange(scores.shape[-1], device=scores.device)
        return (components == scores.argmax(-1, keepdim=True)).to(scores.dtype)

    def _of_entries(self) -> Tensor:
        """The components' probabilities for each entry, `(…, B, D or 1, C)`."""
        joint = self.probabilities.unsqueeze(-2)
        if not self._soft:
            return joint
        own = self._probabilities(self._own_scores())
        return torch.where(self._kept.unsqueeze(-1), own, joint)

    def _flat_mean(self) -> Tensor:
        return (self._of_entries() * self._features.means.mT).sum(-1)

    def _reads_own(self) -> bool:
        """Whether draws against kept entries are read: not of hard masks without a gradient."""
        if not self._soft:
            return False
        # Of a mask inside vmap, detached or not, values cannot be read.
        if may_carry_gradient(self._keep if torch.is_grad_enabled() else self._keep.detach()):
            return True
        # On other devices nothing waits for a number.
        return self._keep.device.type != "cpu" or bool((self._kept & (self._keep < 1)).any())

    def _uniform(self, shape: torch.Size) -> Tensor:
        like = self._keep
        return torch.rand((*shape, 1), dtype=like.dtype, device=like.device)

    @torch.no_grad()
    def _own_drawn(self, shape: torch.Size) -> Tensor:
        """The component of each entry by itself, `(*shape)`."""
        ends = self._probabilities(self._own_scores()).cumsum(-1)
        return _drawn(ends, self._uniform(shape))


def _drawn(ends: Tensor, uniform: Tensor) -> Tensor:
    """Components by inversion of the cumulative probabilities."""
    # Scaled by the last end, which rounding leaves near 1, so that no component without
    # probability is ever drawn.
    return (uniform * ends[..., -1:] >= ends).sum(-1)
