"""Distributions of y by several predictors: of blocks of rows, averaged, held out."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.distributions.util import broadcast_shape
from torch import Tensor

ROW_DIM = -1
"""Of the batch shape of a distribution of y."""


def mean_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """`1/F Σ_f p_f(y)`, of distributions of one kind: of labels by their probabilities.

    Example:
        >>> each = [dist.Bernoulli(torch.tensor(p)) for p in (0.2, 0.4)]
        >>> mean_distribution(each).probs
        tensor(0.3000)
    """
    first = distributions[0]
    if hasattr(first, "mean_of"):
        mean: TorchDistribution = first.mean_of(distributions)
        return mean
    if (labels := _of_labels(first)) is not None:
        return labels(probs=torch.stack([d.probs for d in distributions]).mean(0))
    return MeanDistribution(distributions)


def joined_distribution(distributions: Sequence[TorchDistribution]) -> TorchDistribution:
    """The distribution of the rows of several distributions of one kind, one block after the other.

    Example:
        >>> blocks = [dist.Normal(torch.zeros(2), 1.0), dist.Normal(torch.ones(1), 2.0)]
        >>> joined_distribution(blocks).stddev
        tensor([1., 1., 2.])
    """
    first = distributions[0]
    if len(distributions) == 1:
        return first
    if hasattr(first, "joined"):
        joined: TorchDistribution = first.joined(distributions)
        return joined
    if (labels := _of_labels(first)) is not None:
        dim = ROW_DIM - (1 if labels is dist.Categorical else 0)
        return labels(logits=torch.cat([d.logits for d in distributions], dim))
    return RowBlocks(distributions)


def _of_labels(distribution: TorchDistribution) -> Any:
    kinds = (kind for kind in (dist.Categorical, dist.Bernoulli) if isinstance(distribution, kind))
    return next(kinds, None)


class _OfSeveral(TorchDistribution):
    """Distributions of one kind as one.

    Args:
        parts: alike in event shape and support.
        batch_shape: of all together.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, parts: Sequence[TorchDistribution], batch_shape: Sequence[int]) -> None:
        self.parts = list(parts)
        self.has_rsample = all(part.has_rsample for part in parts)
        super().__init__(torch.Size(batch_shape), parts[0].event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """That of each."""
        return self.parts[0].support


class RowBlocks(_OfSeveral):
    """The rows of several distributions, along the last batch dimension, as one distribution.

    Args:
        blocks: batch shapes `(…, B_f)`.
    """

    def __init__(self, blocks: Sequence[TorchDistribution]) -> None:
        self._sizes = [block.batch_shape[ROW_DIM] for block in blocks]
        before = torch.Size(broadcast_shape(*(block.batch_shape[:ROW_DIM] for block in blocks)))
        aligned = [b.expand((*before, n)) for b, n in zip(blocks, self._sizes, strict=True)]
        super().__init__(aligned, (*before, sum(self._sizes)))

    def log_prob(self, value: Tensor) -> Tensor:
        own = (sum(self._sizes), *self.event_shape)
        value = value.expand(torch.Size(broadcast_shape(value.shape, own)))
        values = value.split(self._sizes, ROW_DIM - self.event_dim)
        each = zip(self.parts, values, strict=True)
        return torch.cat([part.log_prob(own) for part, own in each], ROW_DIM)

    def _joined(self, values: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(values), ROW_DIM - self.event_dim)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self._joined([part.sample(torch.Size(sample_shape)) for part in self.parts])

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._joined([part.rsample(torch.Size(sample_shape)) for part in self.parts])

    @property
    def mean(self) -> Tensor:
        return self._joined([part.mean for part in self.parts])

    @property
    def variance(self) -> Tensor:
        return self._joined([part.variance for part in self.parts])

    def expand(self, batch_shape: Any, _instance: Any = None) -> "RowBlocks":
        sizes = zip(self.parts, self._sizes, strict=True)
        return RowBlocks([part.expand((*batch_shape[:ROW_DIM], n)) for part, n in sizes])


class HeldOut(_OfSeveral):
    """The distribution of y by the predictors that have not learned from the rows, with those of
    the predictors that learn from them.

    It has a density and values to be listed, and no moments or parameters: a program that reads
    more than the density takes a run for each (:func:`cross_fitted`).

    Args:
        judge: by the predictors of shift 0.
        learning: by those of the other shifts, one for each.
    """

    def __init__(self, judge: TorchDistribution, learning: Sequence[TorchDistribution]) -> None:
        super().__init__([judge], judge.batch_shape)
        self.learning = list(learning)

    @property
    def has_enumerate_support(self) -> bool:
        return bool(self.parts[0].has_enumerate_support)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values: Tensor = self.parts[0].enumerate_support(expand=expand)
        return values

    def log_prob(self, value: Tensor) -> Tensor:
        density: Tensor = self.parts[0].log_prob(value)
        return density

    def expand(self, batch_shape: Any, _instance: Any = None) -> "HeldOut":
        others = [distribution.expand(batch_shape) for distribution in self.learning]
        return HeldOut(self.parts[0].expand(batch_shape), others)


class MeanDistribution(_OfSeveral):
    """`1/F Σ_f p_f`, of any distributions of one event.

    Example:
        >>> both = MeanDistribution([dist.Normal(0.0, 1.0), dist.Normal(2.0, 1.0)])
        >>> both.mean, both.variance
        (tensor(1.), tensor(2.))
    """

    def __init__(self, each: Sequence[TorchDistribution]) -> None:
        shape = torch.Size(broadcast_shape(*(one.batch_shape for one in each)))
        super().__init__([one.expand(shape) for one in each], shape)
        self.has_rsample = False

    def log_prob(self, value: Tensor) -> Tensor:
        each = torch.stack([part.log_prob(value) for part in self.parts])
        return each.logsumexp(0) - math.log(len(each))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            every = torch.stack([part.sample(torch.Size(sample_shape)) for part in self.parts])
            batch = every.shape[1 : every.dim() - self.event_dim]
            which = torch.randint(len(every), batch, device=every.device)
            which = which.reshape(1, *batch, *(1,) * self.event_dim).expand(1, *every.shape[1:])
            return every.gather(0, which).squeeze(0)

    @property
    def mean(self) -> Tensor:
        return torch.stack([part.mean for part in self.parts]).mean(0)

    @property
    def variance(self) -> Tensor:
        between = torch.stack([part.mean for part in self.parts]).var(0, unbiased=False)
        return torch.stack([part.variance for part in self.parts]).mean(0) + between

    def expand(self, batch_shape: Any, _instance: Any = None) -> "MeanDistribution":
        return MeanDistribution([part.expand(batch_shape) for part in self.parts])
