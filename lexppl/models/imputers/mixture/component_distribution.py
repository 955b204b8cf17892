"""Hidden features of a mixture whose component is told by the kept ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import torch
from pyro.distributions.torch_distribution import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

from lexppl.distributions.gradients import may_carry_gradient
from lexppl.models.imputers.mixture.blocks import blocks, each_block
from lexppl.models.imputers.mixture.component_features import ComponentFeatures, Evidence

__all__ = ["ComponentDistribution"]


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

    Rows may be images: D is the number of their entries. The scores of all masks are one product of
    matrices `(L, D) × (D, C)` for each row. Memory is bounded whatever C is: beside tensors of the
    size of the masks, `(…, B, D)`, and of the scores, `(…, B, C)`, a computation holds a few
    with features and components both, of :data:`.blocks.NUMBERS_AT_ONCE` numbers at most or of one
    component. Gradients of means, variances and densities compute the components again, and keep a
    tensor of the size of the masks for each few of them; draws have none to keep.

    Args:
        keep: boolean or in [0, 1], shape `(…, B, *event)` or broadcastable to it.
        log_weights: `a`, shape `(C,)`.
        evidence: `e` of the rows.
        features: what each component's features are.
        event_shape: of a row, D entries in all; `(D,)` if None.
        nearest: give all probability to the largest score, the first of equal ones.

    Example:
        >>> from lexppl.models.imputers.mixture.mixture_imputer import GaussianEvidence
        >>> from lexppl.models.imputers.mixture.mixture_means import FeatureMeans
        >>> means = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
        >>> evidence = GaussianEvidence(torch.tensor([[0.0, 2.0]]), means, 0.1 * torch.ones(2, 2))
        >>> keep = torch.tensor([[False, True]])
        >>> ComponentDistribution(keep, torch.zeros(2), evidence, FeatureMeans(means)).mean[0, 0]
        tensor(1.)
    """

    arg_constraints: dict[str, constraints.Constraint] = {}  # noqa: RUF012
    has_rsample = True

    def __init__(
        self,
        keep: Tensor,
        log_weights: Tensor,
        evidence: Evidence,
        features: ComponentFeatures,
        event_shape: Sequence[int] | None = None,
        nearest: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        event = evidence.x.shape[-1:] if event_shape is None else torch.Size(event_shape)
        if keep.ndim <= len(event):
            keep = keep.unsqueeze(0)
        keep = keep.expand(*keep.shape[: -len(event)], *event).flatten(-len(event))
        self._soft = keep.dtype != torch.bool
        self._keep = keep.to(evidence.x.dtype)
        self._kept = keep > 0.5 if self._soft else keep
        self._log_weights = log_weights
        self._evidence = evidence
        self._features = features
        self._nearest = nearest
        self._evidence_offset = None if nearest else self._largest_evidence()
        self._whole_evidence: Tensor | None = None
        if len(self._blocks(evidence.x.shape)) == 1:
            self._whole_evidence = self._evidence_of(slice(0, self._components))
        batch_shape = torch.broadcast_shapes(keep.shape[:-1], evidence.x.shape[:-1])
        self._flat_shape = batch_shape + keep.shape[-1:]
        with torch.no_grad():
            self._joint_ends = self._probabilities(self._scores()).cumsum(-1)
            # Of each entry's own component; None where nothing asks for it, or where it is found
            # for a few components at a time.
            self._own_ends: Tensor | None = None
            if self._soft and len(self._blocks(self._flat_shape)) == 1:
                own = self._own_scores(slice(0, self._components))
                self._own_ends = self._probabilities(own).cumsum(-1)
        super().__init__(batch_shape, event, validate_args=validate_args)

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
            "_evidence_offset",
            "_whole_evidence",
            "_features",
            "_nearest",
            "_flat_shape",
            "_joint_ends",
            "_own_ends",
        ):
            setattr(new, name, getattr(self, name))
        super(ComponentDistribution, new).__init__(
            torch.Size(batch_shape), self.event_shape, validate_args=False
        )
        return new

    @property
    def support(self) -> constraints.Constraint:
        """The reals, entry by entry."""
        return constraints.independent(constraints.real, len(self.event_shape))

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
        together = self._features.draw(_drawn(self._joint_ends, shape).unsqueeze(-1))
        drawn = together
        if self._reads_own():
            own_shape = shape + self._flat_shape[-1:]
            if self._own_ends is None:
                own = self._own_drawn(own_shape)
            else:
                own = _drawn(self._own_ends, own_shape)
            drawn = torch.where(self._kept, self._features.draw(own), together)
        return drawn.reshape(shape + self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each entry, shape `(…, B, *event)`."""
        return self._unflat(self._flat_mean())

    @property
    def variance(self) -> Tensor:
        """The variance of each entry, shape `(…, B, *event)`."""
        means, variances = self._features.means.mT, self._features.variances.mT
        mean = self._flat_mean().unsqueeze(-1)
        of_entries = self._of_entries()

        def spread(block: slice) -> Tensor:
            within = variances[:, block] + (means[:, block] - mean) ** 2
            return (of_entries(block) * within).sum(-1)

        return self._unflat(reduce(torch.add, each_block(self._blocks(self._flat_shape), spread)))

    def log_prob_hidden(self, value: Tensor, hidden: Tensor) -> Tensor:
        """The joint log-density of the draws at the entries `hidden`, shape `(…, B)`.

        Args:
            value: the draws, shape `(…, B, *event)`; what stands outside `hidden` is not read.
            hidden: boolean; must hold on H, and may on entries of S.

        Raises:
            NotImplementedError: where the features of a component are points.
        """
        value, hidden = self._flat(value), self._flat(hidden)
        pieces = self._blocks(torch.broadcast_shapes(value.shape, hidden.shape, self._flat_shape))
        together = (hidden & ~self._kept).unsqueeze(-1)

        def joint(block: slice) -> Tensor:
            return torch.where(together, self._features.log_prob(value, block), 0).sum(-2)

        scores = self._scores().log_softmax(-1)
        log_prob = (scores + torch.cat(list(each_block(pieces, joint)), -1)).logsumexp(-1)
        if self._soft:
            normaliser = self._own_normaliser()

            def own(block: slice) -> Tensor:
                scores = self._own_scores(block) - normaliser.unsqueeze(-1)
                return (scores + self._features.log_prob(value, block)).logsumexp(-1)

            alone = reduce(torch.logaddexp, each_block(pieces, own))
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

    @property
    def _components(self) -> int:
        return len(self._log_weights)

    def _blocks(self, shape: torch.Size) -> list[slice]:
        """Of components, for tensors that are of this shape for each."""
        return blocks(self._components, shape.numel())

    def _flat(self, value: Tensor) -> Tensor:
        events = len(self.event_shape)
        return value.expand(*value.shape[:-events], *self.event_shape).flatten(-events)

    def _unflat(self, value: Tensor) -> Tensor:
        return value.expand(self.batch_shape + self._flat_shape[-1:]).reshape(
            self.batch_shape + self.event_shape
        )

    def _largest_evidence(self) -> Tensor:
        """Of each feature, over components: one far from all of them would else drown the digits
        of the others' differences."""
        with torch.no_grad():
            pieces = self._blocks(self._evidence.x.shape)
            largest = (self._evidence.of(block).amax(-1) for block in pieces)
            return reduce(torch.maximum, largest).unsqueeze(-1)

    def _evidence_of(self, block: slice) -> Tensor:
        if self._whole_evidence is not None:
            return self._whole_evidence[..., block]
        evidence = self._evidence.of(block)
        return evidence if self._evidence_offset is None else evidence - self._evidence_offset

    def _scores(self) -> Tensor:
        """Of the components, `(…, B, C)`."""

        def kept_evidence(block: slice) -> Tensor:
            return torch.einsum("...bd,bdc->...bc", self._keep, self._evidence_of(block))

        pieces = self._blocks(self._evidence.x.shape)
        return self._log_weights + torch.cat(list(each_block(pieces, kept_evidence)), -1)

    def _probabilities(self, scores: Tensor) -> Tensor:
        if not self._nearest:
            return scores.softmax(-1)
        components = torch.arange(scores.shape[-1], device=scores.device)
        return (components == scores.argmax(-1, keepdim=True)).to(scores.dtype)

    def _own_scores(self, block: slice) -> Tensor:
        """Scores without each entry's own evidence, `(…, B, D, c)`."""
        evidence = self._evidence_of(block)
        terms = self._keep.unsqueeze(-1) * evidence
        if len(self._blocks(self._flat_shape)) == 1:
            return self._log_weights[block] + _sum_of_others(terms)
        # Of many entries sums from both ends take several times as long. In double precision a
        # difference keeps the digits of small sums, but beside a term of 10 ** 12 nats.
        precise = terms.dtype if terms.device.type == "mps" else torch.float64
        total = torch.einsum(
            "...bd,bdc->...bc", self._keep.to(precise), evidence.to(precise)
        ).unsqueeze(-2)
        return self._log_weights[block] + (total - terms).to(terms.dtype)

    def _own_normaliser(self) -> Tensor:
        """What makes them log-probabilities, `(…, B, D)`; of the nearest, their largest."""

        def largest(block: slice) -> Tensor:
            scores = self._own_scores(block)
            return scores.amax(-1) if self._nearest else scores.logsumexp(-1)

        join = torch.maximum if self._nearest else torch.logaddexp
        return reduce(join, each_block(self._blocks(self._flat_shape), largest))

    def _own_nearest(self) -> Tensor:
        """The component of the largest own score, the first of equal ones, `(…, B, D)`."""
        best, place = None, None
        for block in self._blocks(self._flat_shape):
            value, found = self._own_scores(block).max(-1)
            found = found + block.start
            if best is None or place is None:
                best, place = value, found
            else:
                place = torch.where(value > best, found, place)
                best = torch.maximum(best, value)
        if place is None:
            raise ValueError("a mixture needs a component")
        return place

    def _of_entries(self) -> Callable[[slice], Tensor]:
        """A function from components to their probabilities for each entry, `(…, B, D, c)`."""
        joint = self.probabilities.unsqueeze(-2)
        if not self._soft:
            return lambda block: joint[..., block]
        kept = self._kept.unsqueeze(-1)
        if self._nearest:
            nearest = self._own_nearest().unsqueeze(-1)
            components = torch.arange(self._components, device=nearest.device)
            return lambda block: torch.where(
                kept, (nearest == components[block]).to(joint.dtype), joint[..., block]
            )
        normaliser = self._own_normaliser().unsqueeze(-1)
        return lambda block: torch.where(
            kept, (self._own_scores(block) - normaliser).exp(), joint[..., block]
        )

    def _flat_mean(self) -> Tensor:
        means = self._features.means.mT
        of_entries = self._of_entries()

        def part(block: slice) -> Tensor:
            return (of_entries(block) * means[:, block]).sum(-1)

        return reduce(torch.add, each_block(self._blocks(self._flat_shape), part))

    def _reads_own(self) -> bool:
        """Whether draws against kept entries are read: not where masks are hard without gradient.

        Where they cost little they are drawn all the same, and nothing has to be asked.
        """
        if not self._soft:
            return False
        if self._own_ends is not None:
            return True
        if torch.is_grad_enabled() and may_carry_gradient(self._keep):
            return True
        if may_carry_gradient(self._keep.detach()):  # inside vmap, where nothing can be asked
            return True
        return bool((self._kept & (self._keep < 1)).any())

    @torch.no_grad()
    def _own_drawn(self, shape: torch.Size) -> Tensor:
        """As :func:`_drawn`, of probabilities that are computed for a few components at a time."""
        uniform = torch.rand((*shape, 1), dtype=self._keep.dtype, device=self._keep.device)
        if self._nearest:
            return self._own_nearest().expand(shape)
        normaliser = self._own_normaliser().unsqueeze(-1)
        before = torch.zeros_like(normaliser)
        count = torch.zeros(shape, dtype=torch.long, device=uniform.device)
        last = torch.zeros(normaliser.shape[:-1], dtype=torch.long, device=uniform.device)
        for block in self._blocks(shape):
            probabilities = (self._own_scores(block) - normaliser).exp()
            places = torch.arange(block.start, block.stop, device=uniform.device)
            last = torch.maximum(last, torch.where(probabilities > 0, places, 0).amax(-1))
            ends = before + probabilities.cumsum(-1)
            count = count + (uniform >= ends).sum(-1)
            before = ends[..., -1:]
        # Rounding leaves the last end near 1: no component without probability is ever drawn.
        return torch.minimum(count, last)


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
