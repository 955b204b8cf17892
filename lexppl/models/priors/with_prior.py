"""Priors for the weights of any network: what is a parameter becomes a latent of the program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import pyro.distributions as dist
import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
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


Chosen = Callable[[str, Tensor], Distribution | None]
"""The prior of a weight by its name and value, or None for one that is learned."""

Prior = Distribution | Chosen | Mapping[str, Distribution | Chosen]
"""A distribution for all weights, a function that chooses, or either by part."""

Module = TypeVar("Module", bound=nn.Module)

PARTS = ("selector", "predictor")
"""The parts of an explainer with networks."""

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


def with_prior(module: Module, prior: Prior) -> Module:
    r"""A copy of a network whose weights are latents with a prior:

    .. math:: w \sim p(w), \qquad y_n \mid x_n, w \sim p(y \mid x_n, w) \quad\text{given one } w
              \text{ for all rows.}

    Each weight that has a prior is a Pyro sample site under its own name, as
    `selector.network.layers.0.weight`, of event shape the tensor's and no batch shape; a guide or a
    sampler has its posterior, and :func:`lexppl.inference.fit` draws it before the plates (in a
    program of your own call :func:`lexppl.effects.draw_weights` first). Give the whole
    program, so that names are those of their places in it.

    What keeps its point estimate: what no part of `prior` names; parameters that are not learned
    (of a :func:`lexppl.models.frozen` predictor); and, unless they are named in full or chosen by a
    function, single numbers (a likelihood's log-scale) and the scales and shifts of layer and group
    norms.

    Args:
        module: any torch module.
        prior: a distribution of one number, which all weights have independently, or of the
            weight's shape; a function `(name, weight) -> distribution or None`; or either by part,
            as `{"selector": dist.Normal(0.0, 1.0)}` for `module.selector` and all below it: of
            several names the longest counts.

    Returns:
        the copy, of the same class made a `PyroModule`. Its priors' numbers are buffers, saved with
        it.

    Raises:
        TypeError: what is no distribution (a class, a number), or one of an unknown family.
        ValueError: an improper distribution, one of another shape; a part that there is not or that
            has no such weight; batch norm among the weights, under which a row's likelihood depends
            on the other rows; a weight that stands in two places; a constrained parameter.

    References:
        Neal (1996), "Bayesian learning for neural networks", § 1.2 and § 2.1, for priors that
        shrink with a layer's width. Blundell et al. (2015), "Weight uncertainty in neural
        networks", ICML, for their mean-field posteriors (Pyro's `AutoNormal`).

    Example:
        >>> import pyro.distributions as dist
        >>> def by_width(name, weight):
        ...     return dist.Normal(0.0, weight.shape[-1] ** -0.5 if weight.dim() > 1 else 1.0)
        >>> weight_priors(with_prior(nn.Linear(4, 1), by_width))["weight"]["config"]
        {'loc': 0.0, 'scale': 0.5}
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"with_prior takes a torch module; it is given {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("a scripted module cannot be given priors: give the module it was made of")
    chosen = chosen_priors(module, prior)
    fresh = copy.deepcopy(module)
    put_priors(fresh, chosen)
    return fresh


def chosen_priors(module: nn.Module, prior: Prior) -> dict[str, WeightPrior]:
    """The prior of each weight that is to have one, by its name; errors as :func:`with_prior`."""
    parts = dict(prior) if isinstance(prior, Mapping) else {"": prior}
    if not parts:
        raise ValueError("prior names no part; leave it out, or give a distribution")
    learned = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    for part, given in parts.items():
        below = [name for name, _ in learned if _is_below(name, part)]
        if not below:
            tops = sorted({name.split(".")[0] for name, _ in learned})
            raise ValueError(
                f"prior names {part!r}, where there is no weight that is learned; there are some "
                f"in {tops}"
            )
        # Read once whole, so that what is no prior is refused whichever weights there are.
        if not _chooses(given):
            WeightPrior.of(part or below[0], given, dict(learned)[below[0]].shape)
    holders = dict(module.named_modules())
    found: dict[str, WeightPrior] = {}
    for name, weight in learned:
        named = [p for p in parts if _is_below(name, p)]
        if not named:
            continue
        own = max(named, key=len)
        one: Any = parts[own]
        if _chooses(one):
            one = one(name, weight.detach())
        elif name != own and (
            weight.dim() == 0 or isinstance(holders[name.rpartition(".")[0]], _NORMS)
        ):
            continue
        if one is not None:
            found[name] = WeightPrior.of(name, one, weight.shape)
    idle = [part for part in parts if not any(_is_below(name, part) for name in found)]
    if not found or any(not _chooses(parts[part]) for part in idle):
        raise ValueError(
            f"prior gives no weight of {idle[0] or type(module).__name__!r} a prior: a "
            "distribution is for tensors of weights outside norms, and a function gives one by the "
            "weight's name"
        )
    _refuse_unfit(module, found, [part for part in parts if part not in idle])
    return found


def put_priors(module: nn.Module, chosen: Mapping[str, WeightPrior]) -> None:
    """Make parameters of a module, which is not in use, latents in place, by
    :func:`chosen_priors`."""
    owners = {name.rpartition(".")[0] for name in chosen}
    parts = dict(module.named_modules())
    for path, part in parts.items():
        if not isinstance(part, PyroModule) and any(_is_below(owner, path) for owner in owners):
            _become_pyro(part)
    assert isinstance(module, PyroModule)
    module._pyro_name = ""
    name_by_place(module)
    for name, prior in chosen.items():
        path, _, attribute = name.rpartition(".")
        owner = parts[path]
        weight = owner._parameters[attribute]
        assert weight is not None
        setattr(owner, attribute, PyroSample(DrawnWeight(attribute, prior.family, weight.shape)))
        for key, value in prior.arguments.items():
            moved = value.to(dtype=weight.dtype, device=weight.device).clone()
            owner.register_buffer(_buffer(attribute, key), moved)


@dataclass(frozen=True)
class DrawnWeight:
    """The distribution of a weight, made of its owner's buffers: what a `PyroSample` calls."""

    attribute: str
    family: str
    shape: torch.Size

    def __call__(self, owner: nn.Module) -> Any:
        one = FAMILIES[self.family](**self.arguments(owner), validate_args=False)
        batch = self.shape[: len(self.shape) - len(one.event_shape)]
        return one.expand(batch).to_event(len(batch))

    def arguments(self, owner: nn.Module) -> dict[str, Tensor]:
        """The prior's arguments as the owner holds them."""
        start = _buffer(self.attribute, "")
        return {
            name.removeprefix(start): value
            for name, value in owner._buffers.items()
            if name.startswith(start) and value is not None
        }


def weight_priors(module: nn.Module) -> dict[str, dict[str, Any]]:
    """The priors of a module's weights as JSON, by the weight's name; latents that a part's own
    class makes are none of these. A prior given by hand has no description: TypeError."""
    found = {}
    for path, part in module.named_modules():
        for attribute, drawn in getattr(part, "_pyro_samples", {}).items():
            name = f"{path}.{attribute}" if path else attribute
            if not isinstance(drawn, DrawnWeight):
                if written_class(part) is type(part):
                    continue
                raise TypeError(
                    f"the prior of {name!r} was given by hand (PyroSample) and cannot be described"
                )
            found[name] = WeightPrior(drawn.family, drawn.arguments(part)).json()
    return found


def written_class(part: nn.Module) -> type:
    """The class that a module was written as, before it was made a `PyroModule`."""
    kind = type(part)
    first = kind.__bases__[0]
    made_of = issubclass(first, nn.Module) and not issubclass(first, PyroModule)
    if issubclass(kind, PyroModule) and made_of and kind.__name__.startswith("Pyro"):
        return first
    return kind


def _buffer(attribute: str, argument: str) -> str:
    return f"{attribute}_prior_{argument}"


def _chooses(given: Any) -> bool:
    return callable(given) and not isinstance(given, Distribution | type)


def _is_below(name: str, part: str) -> bool:
    return not part or name == part or name.startswith(f"{part}.")


def _refuse_unfit(module: nn.Module, chosen: Mapping[str, Any], parts: list[str]) -> None:
    norms = [n for n, m in module.named_modules() if isinstance(m, _BATCH_NORMS)]
    among = [norm for norm in norms if any(_is_below(norm, part) for part in parts)]
    if among:
        raise ValueError(
            f"{among[0]!r} is a batch norm, under which a row's likelihood depends on the batch's "
            "other rows and the weights before it have no scale: give priors to the parts without "
            "one, as in {'selector': dist.Normal(0.0, 1.0)}, or use networks without batch norm"
        )
    every: dict[int, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        other = every.setdefault(id(weight), name)
        if other != name and other in chosen:
            raise ValueError(
                f"{other!r} and {name!r} are one parameter, and would be drawn as two: give them "
                "parameters of their own, or leave them out of prior"
            )
    parts_by_path = dict(module.named_modules())
    for name in chosen:
        path, _, attribute = name.rpartition(".")
        owner = parts_by_path[path]
        if attribute.removesuffix("_unconstrained") in getattr(owner, "_pyro_params", ()):
            raise ValueError(
                f"{name.removesuffix('_unconstrained')!r} is a constrained parameter (PyroParam): "
                "make it a PyroSample of a distribution with that support instead"
            )
        if hasattr(owner, "parametrizations") or path.split(".")[-2:-1] == ["parametrizations"]:
            raise ValueError(
                f"{name!r} is a parametrised weight (torch.nn.utils.parametrize), whose prior would"
                " be of what it is made of: remove the parametrisation, or leave it out of prior"
            )


def _become_pyro(part: nn.Module) -> None:
    """Pyro's `to_pyro_module_` for one module alone, also of an abstract class's subclass."""
    kind: Any = type(part)
    part.__class__ = _pyro_class(kind)
    blank = vars(PyroModule())
    for name in ("_pyro_name", "_pyro_context", "_pyro_params", "_pyro_samples"):
        vars(part)[name] = blank[name]


@cache
def _pyro_class(kind: Any) -> Any:
    if type(kind) is type:
        return PyroModule[kind]
    # Pyro's own way cannot join its metaclass with that of abstract classes.
    both = type("_PyroABCMeta", (type(PyroModule), type(kind)), {})
    return both(f"Pyro{kind.__name__}", (kind, PyroModule), {})


def explainer_with_prior(
    program: Module, prior: Prior | None, parts: tuple[str, ...] = PARTS
) -> Module:
    """An explainer, just built, whose `parts` have priors as :func:`with_prior`, in place."""
    if prior is None:
        return program
    if isinstance(prior, Mapping):
        others = sorted(name for name in prior if name.split(".")[0] not in parts)
        if others:
            raise ValueError(
                f"prior names {others}; the weights here that can have priors are those of "
                f"{list(parts)}"
            )
    else:
        own = {name: getattr(program, name).parameters() for name in parts}
        prior = {n: prior for n, weights in own.items() if any(w.requires_grad for w in weights)}
    put_priors(program, chosen_priors(program, prior))
    return program


def name_by_place(program: PyroModule) -> None:
    """Let each Pyro part name its latents by its place in the program, also below plain torch
    modules, where Pyro would name `selector.network.weight` `weight`, and draw them once a call."""
    for path, part in program.named_modules():
        if path and isinstance(part, PyroModule):
            part._pyro_name = path
            part._pyro_context = program._pyro_context
