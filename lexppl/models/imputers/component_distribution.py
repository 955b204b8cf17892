"""Hidden features of a mixture of C components, of which the kept features choose one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.distributions.gradients import may_carry_gradient
from lexppl.models.imputers.imputer import POINTS, HiddenFeatures


class ComponentFeatures:
    """The features of a flat row under each of C components: means and variances `(C, D)`, and
    draws."""

    means: Any
    variances: Any

    def draw(self, component: Tensor) -> Tensor:
        """Features `(…, D)`, given components `(…, 1)` of whole rows or `(…, D)` of each entry."""
        raise NotImplementedError

    def log_prob(self, value: Tensor) -> Tensor:
        """The log-density of each feature of `value` `(…, D)` under each component, `(…, D, C)`."""
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
    """Independent features of one family, `(C, D)` locations and scales: `x_d | c ~ N(μ_cd,
    σ_cd²)`."""

    family: Any
    loc: Tensor
    scale: Tensor

    @property
    def means(self) -> Tensor:
        return self.family(self.loc, self.scale, validate_args=False).mean

    @property
    def variances(self) -> Tensor:
        return self.family(self.loc, self.scale, validate_args=False).variance

    def draw(self, component: Tensor) -> Tensor:
        own = (at_component(each, component) for each in (self.loc, self.scale))
        distribution = self.family(*own, validate_args=False)
        draw = distribution.rsample if distribution.has_rsample else distribution.sample
        return draw()

    def log_prob(self, value: Tensor) -> Tensor:
        distribution = self.family(self.loc.mT, self.scale.mT, validate_args=False)
        return distribution.log_prob(value.unsqueeze(-1))


@dataclass(frozen=True)
class FeatureMeans(ComponentFeatures):
    """The component's means themselves, `(C, D)`."""

    means: Tensor

    @property
    def variances(self) -> Tensor:
        return torch.zeros_like(self.means)

    def draw(self, component: Tensor) -> Tensor:
        return at_component(self.means, component)


class ComponentDistribution(HiddenFeatures):
    """What each of a row's D entries would be, were it hidden, in a mixture of C components of
    scores `s_c = a_c + Σ_d z_d e_dc` (log-weights `(C,)`, evidence `(B, D, C)`) and probabilities
    softmax(s), or 1 at the first largest (`nearest`). Hidden entries, `keep ≤ 1/2`, are of one
    component's draw; each kept one, unless `keep` is boolean, of its own component by the score
    minus `z_d e_dc`."""

    def __init__(
        self,
        keep: Tensor,
        log_weights: Tensor,
        evidence: Tensor,
        features: ComponentFeatures,
        event_shape: Sequence[int] | None = None,
        nearest: bool = False,
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
        super().__init__(batch_shape, event)

    @property
    def probabilities(self) -> Tensor:
        """Probabilities of the components given what was kept, `(…, B, C)`."""
        return self._probabilities(self._scores())

    @property
    def log_probabilities(self) -> Tensor:
        """Log-probabilities of the components, `(…, B, C)`, finite also where they are near 0."""
        return self._scores().log_softmax(-1)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws `(*sample_shape, …, B, *event)`."""
        shape = torch.Size(sample_shape) + self.batch_shape
        drawn = self._features.draw(_drawn(self._joint_ends, shape).unsqueeze(-1))
        if self._reads_own():
            with torch.no_grad():
                ends = self._probabilities(self._own_scores()).cumsum(-1)
                own = _drawn(ends, shape + self._flat_shape[-1:])
            drawn = torch.where(self._kept, self._features.draw(own), drawn)
        return drawn.reshape(shape + self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each entry, `(…, B, *event)`."""
        return self._unflat(self._flat_mean())

    @property
    def variance(self) -> Tensor:
        """The variance of each entry, `(…, B, *event)`."""
        means, variances = self._features.means.mT, self._features.variances.mT
        within = variances + (means - self._flat_mean().unsqueeze(-1)) ** 2
        return self._unflat((self._of_entries() * within).sum(-1))

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the entries `hidden` of draws `(…, B, *event)`, `(…, B)`."""
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
        """The log-density of a whole draw, which a boolean `keep` does not have."""
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


def _drawn(ends: Tensor, shape: torch.Size) -> Tensor:
    """Components of a shape, by inversion of the cumulative probabilities."""
    uniform = torch.rand((*shape, 1), dtype=ends.dtype, device=ends.device)
    # Scaled by the last end, which rounding leaves near 1, so that no component without
    # probability is ever drawn.
    return (uniform * ends[..., -1:] >= ends).sum(-1)
