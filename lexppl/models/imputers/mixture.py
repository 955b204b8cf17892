"""Mixture imputers: hidden features of a component, which the kept features choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from pyro.distributions.util import broadcast_shape
from torch import Tensor

from lexppl.argument_checks import finite_float, int_at_least, int_between, shaped
from lexppl.distributions.gradients import may_carry_gradient
from lexppl.models.imputers.imputer import (
    HiddenFeatures,
    Imputer,
    TensorOrShape,
    check_training_rows,
    fill_zero_variances,
    some_rows,
)
from lexppl.models.imputers.simple import _Normal


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
        parameters = (at_component(numbers, component) for numbers in (self.loc, self.scale))
        distribution = self.family(*parameters, validate_args=False)
        return (distribution.rsample if distribution.has_rsample else distribution.sample)()

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
        drawn = self._features.draw(drawn_places(self._joint_ends, shape).unsqueeze(-1))
        if self._reads_own():
            with torch.no_grad():
                ends = self._probabilities(self._own_scores()).cumsum(-1)
                components = drawn_places(ends, shape + self._flat_shape[-1:])
            drawn = torch.where(self._kept, self._features.draw(components), drawn)
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
        entries = self._features.log_prob(value)
        joint = self.log_probabilities + torch.where(together.unsqueeze(-1), entries, 0).sum(-2)
        log_prob = joint.logsumexp(-1)
        if self._soft:
            alone = (self._own_scores().log_softmax(-1) + entries).logsumexp(-1)
            log_prob = log_prob + torch.where(apart, alone, 0).sum(-1)
        return log_prob

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
        terms = keep.unsqueeze(-1) * evidence
        return self._log_weights + (total.unsqueeze(-2) - terms).to(keep.dtype)

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
        alone = self._probabilities(self._own_scores())
        return torch.where(self._kept.unsqueeze(-1), alone, joint)

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


def drawn_places(ends: Tensor, shape: torch.Size) -> Tensor:
    """Places of a shape, drawn by inversion of cumulative probabilities `(…, C)`."""
    uniform = torch.rand((*shape, 1), dtype=ends.dtype, device=ends.device)
    # Scaled by the last end, which rounding leaves near 1, so that no place without
    # probability is ever drawn.
    return (uniform * ends[..., -1:] >= ends).sum(-1)


Mixture = tuple[Tensor, Tensor, Tensor]
"""Weights `(C,)`, means `(C, *event)` and scales `(C, *event)`."""

START_ROWS = 5000  # Most rows that k-means finds a start on


class MixtureImputer(Imputer):
    """Base of the imputers of a mixture of independent features with weights π `(C,)`, means μ and
    standard deviations σ `(C, *event)`: `r_c(x, z) ∝ π_c Π_d N(x_d; μ_cd, σ_cd²)^{z_d}`."""

    weights: Tensor
    means: Tensor
    scales: Tensor
    family: ClassVar[Any] = _Normal  # Of a feature's distribution, by location and scale

    def __init__(self, weights: TensorOrShape, means: TensorOrShape, scales: TensorOrShape) -> None:
        super().__init__()
        weighted = self._register("weights", weights)
        self._register("means", means)
        scaled = self._register("scales", scales)
        shape = shaped("means", self.means, "C *event", filled=True)
        shaped("scales", self.scales, shape)
        shaped("weights", self.weights, shape[:1])
        self._refuse_mixed_types()
        self.event_shape = self.means.shape[1:]
        for name, has_value in (("scales", scaled), ("weights", weighted)):
            least = float(getattr(self, name).min())
            if has_value and least <= 0.0:
                raise ValueError(
                    f"{name} must be positive; the smallest value is {least:g}. Leave out "
                    "components without weight"
                )
        if weighted and abs(float(self.weights.sum()) - 1) > 1e-3:
            raise ValueError(f"weights must sum to 1; their sum is {float(self.weights.sum()):g}")

    @classmethod
    def fit(
        cls, x: Tensor, components: int = 20, seed: int = 0, least_scale: float | None = None
    ) -> Self:
        """The mixture of highest likelihood that expectation maximisation finds from k-means
        (`sklearn.mixture.GaussianMixture`, "diag").

        Args:
            x: training rows, shape `(B, *event)`, finite.
            components: C, from 1 to B.
            seed: of the start; the global random state is not touched.
            least_scale: a least standard deviation in a component, in the units of the features. If
                None, a thousandth of the feature's own for tables, for images a tenth of the
                pixels' root-mean-square one: a pixel that is black in all of a component's images
                may be grey.

        Raises:
            TypeError, ValueError: rows that are no finite floats, or fewer than 2; a number out of
                range.
        """
        return cls(*fit_diagonal_mixture(x, components, seed, least_scale))

    def densities(self) -> IndependentFeatures:
        """The distributions of the features under each component, by which it is judged."""
        return IndependentFeatures(self.family, self.means.flatten(1), self.scales.flatten(1))

    def component_features(self) -> ComponentFeatures:
        """What the hidden features are under each component."""
        return self.densities()

    def hidden_distribution(self, x: Tensor, keep: Tensor) -> ComponentDistribution:
        """The mixture given the kept entries, batch shape `(…, B)`."""
        return ComponentDistribution(
            keep,
            self.weights.log(),
            self.densities().log_prob(x.flatten(1)),
            self.component_features(),
            self.event_shape,
        )

    def responsibilities(self, x: Tensor, keep: Tensor) -> Tensor:
        """The components' probabilities given the kept features of rows `(B, *event)`, `(…, B,
        C)`."""
        self._check_input(x, keep)
        return self.hidden_distribution(x, keep).probabilities


class GaussianMixtureImputer(MixtureImputer):
    """Hidden features from their exact conditional distribution under a mixture of diagonal
    Gaussians:

        x_H | x_S ~ Σ_c r_c Π_{d ∈ H} N(μ_cd, σ_cd²),
        r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    A component is drawn by its responsibility, from the kept features only, and then its Gaussian
    for all hidden features. A fractional `keep` is the exponent of a feature's density in `r`, and
    interpolates; its gradient is `x − u`, with u what the entry would be were it alone hidden. The
    choice of the component has no gradient, so that an estimator which differentiates relaxed masks
    is biased by it: give it hard masks (`straight_through=True`). A boolean `keep` costs less.

    Rows are tables' `(D,)` or images' `(channels, H, W)`.

    Args:
        weights: π, shape `(C,)`, positive, of sum 1.
        means: μ, shape `(C, *event)`, in the units of the features.
        scales: the standard deviations σ > 0, shape `(C, *event)`.

    Raises:
        TypeError, ValueError: types, shapes or values other than these.

    Source: Senetaire et al. 2023, appendix B ("Gaussian mixture model").

    Example:
        >>> imputer = GaussianMixtureImputer(
        ...     [0.5, 0.5], [[-1.0, -9.0], [1.0, 9.0]], [[0.1, 1.0], [0.1, 1.0]]
        ... )
        >>> imputer(torch.tensor([[1.1, 0.0]]), torch.tensor([True, False])).mean
        tensor([[1.1000, 9.0000]])
    """


class MixtureMeansImputer(MixtureImputer):
    """Hidden features are the means of a random component of a mixture of diagonal Gaussians:

        x̃ = z ⊙ x + (1 − z) ⊙ μ_c,    c ~ r,    r_c ∝ π_c Π_{d ∈ S} N(x_d; μ_cd, σ_cd²).

    The component stays random: this is not the conditional mean `Σ_c r_c μ_c`. Fractional masks and
    the arguments are those of :class:`GaussianMixtureImputer`; there is no `log_prob`.

    Source: Senetaire et al. 2023, appendix B ("means of GMM").

    Example:
        >>> imputer = MixtureMeansImputer(
        ...     [0.5, 0.5], [[-1.0, -9.0], [1.0, 9.0]], [[0.1, 1.0], [0.1, 1.0]]
        ... )
        >>> imputer(torch.tensor([[1.1, 0.0]]), torch.tensor([True, False])).sample()
        tensor([[1.1000, 9.0000]])
    """

    def component_features(self) -> ComponentFeatures:
        """The means of each component."""
        return FeatureMeans(self.means.flatten(1))


def check_component_fit(x: Tensor, components: int, seed: int) -> None:
    """Refuse what no mixture of that many components can be fitted to."""
    check_training_rows(x)
    int_between("components", components, 1, len(x), note="the rows of x")
    int_at_least("seed", seed, 0)


def fit_diagonal_mixture(
    x: Tensor, components: int, seed: int, least_scale: float | None = None
) -> Mixture:
    """Weights `(C,)`, means and standard deviations `(C, *event)` of a mixture, as
    :meth:`.MixtureImputer.fit`; a feature of a table that does not vary has a tiny scale."""
    from sklearn.mixture import GaussianMixture  # noqa: PLC0415

    check_component_fit(x, components, seed)
    if least_scale is not None:
        least_scale = finite_float("least_scale", least_scale, above=0.0)
    kind = {"covariance_type": "diag", "random_state": seed}
    rows = x.detach().flatten(1).cpu().double().numpy()
    if x.ndim > 2 or least_scale is not None:
        flat = x.detach().flatten(1)
        spread = float(flat.var(0, correction=0).double().mean()) ** 0.5
        usual = 0.1 * spread if spread > 0 else float(torch.finfo(x.dtype).eps) ** 0.5
        added = usual if least_scale is None else least_scale
        start = start_by_clusters(flat, components, seed, added)
        share, mean, scale = (part.cpu().double().numpy() for part in start)
        mixture = GaussianMixture(
            components,
            reg_covar=added**2,
            max_iter=200,
            weights_init=share / share.sum(),
            means_init=mean,
            precisions_init=scale**-2,
            **kind,
        ).fit(rows)
        means, scales = mixture.means_, np.sqrt(mixture.covariances_)
    else:
        varies = (rows != rows[0]).any(0) & (rows.std(0) > 0)
        mean = np.where(varies, rows.mean(0), rows[0])
        variance = np.where(varies, rows.var(0), 0.0)
        scale = np.where(varies, np.sqrt(variance), 1.0)
        mixture = GaussianMixture(components, reg_covar=1e-6, max_iter=500, **kind).fit(
            (rows - mean) / scale
        )
        least = fill_zero_variances(torch.from_numpy(variance)).numpy() * torch.finfo(x.dtype).eps
        means = mean + scale * mixture.means_
        scales = np.where(varies, scale * np.sqrt(mixture.covariances_), np.sqrt(least))
    weights = torch.from_numpy(mixture.weights_ / mixture.weights_.sum()).to(x)
    shape = (-1, *x.shape[1:])
    parts = (torch.from_numpy(value).to(x).reshape(shape) for value in (means, scales))
    return weights, next(parts), next(parts)


def start_by_clusters(rows: Tensor, components: int, seed: int, least_scale: float) -> Mixture:
    """Shares, means and standard deviations of k-means' clusters, on at most 5,000 random flat
    rows; `least_scale²` is added to each variance."""
    from sklearn.cluster import KMeans  # noqa: PLC0415

    rows = some_rows(rows, max(START_ROWS, components), seed)
    labels = KMeans(components, n_init=1, random_state=seed).fit_predict(rows.cpu().numpy())
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels).long(), components)
    members = one_hot.to(rows).mT
    # k-means leaves a cluster empty only where there are fewer distinct rows than clusters.
    count = members.sum(-1, keepdim=True).clamp(min=1)
    means = members @ rows / count
    variances = (members @ rows**2 / count - means**2).clamp(min=0) + least_scale**2
    return count.squeeze(-1) / count.sum(), means, variances.sqrt().clamp(min=least_scale)
