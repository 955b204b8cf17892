"""The distributions that a weight's prior may have: read, checked, written as JSON, made again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution, Independent


@dataclass(frozen=True)
class Family:
    """A kind of distribution.

    Args:
        kind: its class, of Pyro.
        arguments: its constructor's arguments that describe it.
        event_dim: dimensions of one draw.
    """

    kind: type
    arguments: tuple[str, ...]
    event_dim: int = 0


def _families() -> Mapping[str, Family]:
    location_scale = (dist.Normal, dist.Laplace, dist.Cauchy, dist.Logistic, dist.LogNormal)
    known = [Family(kind, ("loc", "scale")) for kind in location_scale]
    known += [Family(kind, ("scale",)) for kind in (dist.HalfNormal, dist.HalfCauchy)]
    known += [Family(kind, ("concentration", "rate")) for kind in (dist.Gamma, dist.InverseGamma)]
    known += [
        Family(dist.StudentT, ("df", "loc", "scale")),
        Family(dist.Exponential, ("rate",)),
        Family(dist.Uniform, ("low", "high")),
        Family(dist.Beta, ("concentration1", "concentration0")),
        Family(dist.Dirichlet, ("concentration",), 1),
        Family(dist.MultivariateNormal, ("loc", "scale_tril"), 1),
    ]
    return MappingProxyType({family.kind.__name__: family for family in known})


FAMILIES = _families()

OTHERWISE = (
    "; for another, make the weight a pyro.nn.PyroSample by hand (such a program is saved by its "
    "weights alone)"
)


@dataclass(frozen=True)
class WeightPrior:
    """The prior of one tensor of weights.

    Args:
        family: the name of its family.
        arguments: by name, of one number's distribution or of the tensor's.
    """

    family: str
    arguments: Mapping[str, Tensor]

    @classmethod
    def of(cls, name: str, distribution: Any, shape: torch.Size) -> WeightPrior:
        """Read a prior off a distribution.

        Args:
            name: of the weight, for messages.
            distribution: of one number, which all entries then have independently, or of the whole
                tensor.
            shape: of the weight.

        Raises:
            TypeError: no distribution, or one of another family.
            ValueError: an improper one, numbers outside its arguments' range, another shape, an
                argument that is to be learned.
        """
        _refuse_what_is_none(name, distribution)
        base = distribution
        while isinstance(base, Independent):
            base = base.base_dist
        family = type(base).__name__
        if family not in FAMILIES or not isinstance(base, Distribution):
            raise TypeError(
                f"the prior of {name!r} is {_said(base)}; a prior of weights is one of "
                f"{sorted(FAMILIES)}{OTHERWISE}"
            )
        arguments = {one: getattr(base, one) for one in FAMILIES[family].arguments}
        _check_arguments(name, base, arguments)
        own = torch.Size((*base.batch_shape, *base.event_shape))
        if own not in (torch.Size(()), shape):
            raise ValueError(
                f"the prior of {name!r} is a {family} of shape {tuple(own)}, and the weight has "
                f"shape {tuple(shape)}: give a distribution of one number, or of that shape"
            )
        return cls(family, {key: value.detach() for key, value in arguments.items()})

    def json(self) -> dict[str, Any]:
        """The family and its arguments as JSON has them.

        Example:
            >>> WeightPrior.of("w", dist.Normal(0.0, 2.0), torch.Size([3])).json()
            {'distribution': 'Normal', 'config': {'loc': 0.0, 'scale': 2.0}}
        """
        config = {name: value.tolist() for name, value in self.arguments.items()}
        return {"distribution": self.family, "config": config}


def made(family: str, arguments: Mapping[str, Tensor], shape: torch.Size) -> Any:
    """The distribution of a tensor of weights, of event shape `shape`, without checks.

    Example:
        >>> made("Normal", {"loc": torch.zeros(()), "scale": torch.ones(())}, torch.Size([2, 3]))
        Independent(Normal(loc: torch.Size([2, 3]), scale: torch.Size([2, 3])), 2)
    """
    known = FAMILIES[family]
    one = known.kind(**arguments, validate_args=False)
    batch = shape[: len(shape) - known.event_dim]
    return one.expand(batch).to_event(len(batch))


def prior_from(description: Any) -> Any:
    """A distribution from its JSON.

    Args:
        description: what :meth:`WeightPrior.json` returned.

    Raises:
        ValueError: a family that is not known, or other arguments than its own.

    Example:
        >>> prior_from({"distribution": "Laplace", "config": {"loc": 0.0, "scale": 1.0}})
        Laplace(loc: 0.0, scale: 1.0)
    """
    family = description.get("distribution") if isinstance(description, Mapping) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(
            f"the file describes a prior {family!r}, which is none of {sorted(FAMILIES)}"
        )
    config = description.get("config", {})
    if set(config) != set(FAMILIES[family].arguments):
        raise ValueError(
            f"the file describes a {family} with {sorted(config)}; it has "
            f"{list(FAMILIES[family].arguments)}"
        )
    values = {name: torch.as_tensor(value) for name, value in config.items()}
    return FAMILIES[family].kind(**values)


def _refuse_what_is_none(name: str, distribution: Any) -> None:
    if isinstance(distribution, type):
        raise TypeError(
            f"the prior of {name!r} is the class {distribution.__name__}; give one of its "
            f"distributions, such as {distribution.__name__}(…) with its arguments"
        )
    if isinstance(distribution, dist.ImproperUniform):
        raise ValueError(
            f"the prior of {name!r} is improper and cannot be drawn from: give a proper one, such "
            "as a wide dist.Normal(0.0, 10.0)"
        )
    if not isinstance(distribution, Distribution):
        raise TypeError(
            f"the prior of {name!r} must be a distribution, such as dist.Normal(0.0, 1.0); it is "
            f"{type(distribution).__name__}"
        )


def _said(distribution: Any) -> str:
    name = type(distribution).__name__
    try:
        discrete = bool(distribution.support.is_discrete)
    except (AttributeError, NotImplementedError):
        discrete = False
    return f"{name}, which is discrete, and weights are real" if discrete else name


def _check_arguments(name: str, base: Distribution, arguments: Mapping[str, Tensor]) -> None:
    family = type(base).__name__
    for key, value in arguments.items():
        if value.requires_grad:
            raise ValueError(
                f"{key} of the prior of {name!r} requires a gradient, and a prior's numbers are "
                f"given: detach it{OTHERWISE}"
            )
        constraint: Any = base.arg_constraints.get(key)
        dependent = constraint is None or type(constraint).__name__.startswith("_Dependent")
        allowed = True if dependent else bool(constraint.check(value).all())
        if not (bool(value.isfinite().all()) and allowed):
            # An infinite scale or bound is how an improper prior is written.
            raise ValueError(
                f"the prior of {name!r} is a {family} with {key} {value.tolist()}; it must be "
                "finite and in the family's range"
            )
