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

NAMES = "Normal Laplace Cauchy Logistic LogNormal StudentT HalfNormal HalfCauchy Gamma InverseGamma"
NAMES += " Exponential Uniform Beta Dirichlet MultivariateNormal"
FAMILIES: Mapping[str, Any] = MappingProxyType({one: getattr(dist, one) for one in NAMES.split()})
"""Pyro's classes by name."""


def arguments_of(family: str) -> tuple[str, ...]:
    """The names of the arguments that describe a distribution of a family."""
    others = {"MultivariateNormal": ("loc", "scale_tril"), "Uniform": ("low", "high")}
    return others.get(family) or tuple(FAMILIES[family].arg_constraints)


OTHERWISE = (
    "; for another, make the weight a pyro.nn.PyroSample by hand (such a program is saved by its "
    "weights alone)"
)


@dataclass(frozen=True)
class WeightPrior:
    """The prior of one tensor of weights: its family and arguments, of one number or of the
    tensor."""

    family: str
    arguments: Mapping[str, Tensor]

    @classmethod
    def of(cls, name: str, distribution: Any, shape: torch.Size) -> WeightPrior:
        """The prior that a distribution gives a weight; refusals name the weight."""
        if not isinstance(distribution, Distribution):
            what = "the class " if isinstance(distribution, type) else ""
            called = (distribution if what else type(distribution)).__name__
            raise TypeError(
                f"the prior of {name!r} must be a distribution, such as dist.Normal(0.0, 1.0); it "
                f"is {what}{called}"
            )
        base: Any = distribution
        while isinstance(base, Independent):
            base = base.base_dist
        family = type(base).__name__
        if family not in FAMILIES:
            raise TypeError(
                f"the prior of {name!r} is {family}; a prior of weights is one of "
                f"{sorted(FAMILIES)}{OTHERWISE}"
            )
        arguments = {one: getattr(base, one) for one in arguments_of(family)}
        _check_arguments(name, base, arguments)
        own = torch.Size((*base.batch_shape, *base.event_shape))
        if own not in (torch.Size(()), shape):
            raise ValueError(
                f"the prior of {name!r} is a {family} of shape {tuple(own)}, and the weight has "
                f"shape {tuple(shape)}: give a distribution of one number, or of that shape"
            )
        return cls(family, {key: value.detach() for key, value in arguments.items()})

    def json(self) -> dict[str, Any]:
        """The family and its arguments as JSON has them."""
        config = {name: value.tolist() for name, value in self.arguments.items()}
        return {"distribution": self.family, "config": config}


def made(family: str, arguments: Mapping[str, Tensor], shape: torch.Size) -> Any:
    """The distribution of a tensor of weights, of event shape `shape`, without checks."""
    one = FAMILIES[family](**arguments, validate_args=False)
    batch = shape[: len(shape) - len(one.event_shape)]
    return one.expand(batch).to_event(len(batch))


def prior_from(description: Any) -> Any:
    """A distribution from what :meth:`WeightPrior.json` returned."""
    family = description.get("distribution") if isinstance(description, Mapping) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(
            f"the file describes a prior {family!r}, which is none of {sorted(FAMILIES)}"
        )
    config = description.get("config", {})
    if set(config) != set(arguments_of(family)):
        raise ValueError(
            f"the file describes a {family} with {sorted(config)}; it has "
            f"{list(arguments_of(family))}"
        )
    values = {name: torch.as_tensor(value) for name, value in config.items()}
    return FAMILIES[family](**values)


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
