"""Priors for the weights of any network: what is a parameter becomes a latent of the program."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import torch
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from torch.distributions import Distribution

from lexppl.models.priors.families import WeightPrior, made

Chosen = Callable[[str, Tensor], Distribution | None]
"""The prior of a weight by its name and value, or None for one that is learned."""

Prior = Distribution | Chosen | Mapping[str, Distribution | Chosen]
"""A distribution for all weights, a function that chooses, or either by part."""

Module = TypeVar("Module", bound=nn.Module)

PARTS = ("selector", "predictor")
"""The parts of an explainer with networks."""

Program = TypeVar("Program", bound=nn.Module)

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


def with_prior(module: Module, prior: Prior) -> Module:
    r"""A copy of a network whose weights are latents with a prior:

    .. math:: w \sim p(w), \qquad y_n \mid x_n, w \sim p(y \mid x_n, w) \quad\text{given one } w
              \text{ for all rows.}

    Each weight that has a prior is a Pyro sample site under its own name, as
    `selector.network.layers.0.weight`, of event shape the tensor's and no batch shape. It is no
    longer a parameter: a guide or a sampler has its posterior, and :func:`lexppl.inference.fit`
    draws it before the plates (in a program of your own call
    :func:`lexppl.effects.draw_weights` first). Give the whole program rather than its
    parts, so that names are those of their places in it.

    What keeps its point estimate: what no part of `prior` names; parameters that are not learned
    (of a :func:`lexppl.models.frozen` predictor); and, unless they are named in full or chosen by
    a function, single numbers (a likelihood's log-scale) and the scales and shifts of layer and
    group norms.

    Args:
        module: any torch module.
        prior: a distribution of one number, which all weights have independently; a function
            `(name, weight) -> distribution or None`; or either by part, as
            `{"selector": dist.Normal(0.0, 1.0)}` for `module.selector` and all below it: of
            several names the longest counts. A distribution may also have the weight's own shape.

    Returns:
        the copy, of the same class made a `PyroModule`. Its priors' numbers are buffers, which
        move with the module to a device or type, are saved with it, and may differ between
        replicates.

    Raises:
        TypeError: what is no distribution (a class, a number), or one of an unknown family.
        ValueError: an improper distribution, one of another shape; a part that there is not or
            that has no such weight; batch norm among the weights, under which a row's likelihood
            depends on the other rows; a weight that stands in two places; a constrained parameter.

    References:
        Neal (1996), "Bayesian learning for neural networks", § 1.2 and § 2.1, for priors that
        shrink with a layer's width, as in the example. Blundell, Cornebise, Kavukcuoglu & Wierstra
        (2015), "Weight uncertainty in neural networks", ICML, for their mean-field posteriors
        (Pyro's `AutoNormal`).

    Example:
        >>> import pyro.distributions as dist
        >>> from lexppl.models import MLP
        >>> network = with_prior(MLP(3, 1, (4,)), dist.Normal(0.0, 1.0))
        >>> len(list(network.parameters()))
        0
        >>> weight_priors(network)["layers.0.bias"]
        {'distribution': 'Normal', 'config': {'loc': 0.0, 'scale': 1.0}}
        >>> def by_width(name, weight):
        ...     return dist.Normal(0.0, weight.shape[-1] ** -0.5 if weight.dim() > 1 else 1.0)
        >>> weight_priors(with_prior(MLP(3, 1, (4,)), by_width))["layers.1.weight"]["config"]
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
        elif name != own and _stays(holders[name.rpartition(".")[0]], weight):
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
    """Make parameters of a module latents, in place: it and what it holds must not be in use.

    Args:
        module: the whole.
        chosen: of :func:`chosen_priors`.
    """
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
    """The distribution of a weight, made of its owner's buffers: what a `PyroSample` calls.

    Args:
        attribute: the weight's name in its owner.
        family: the prior's.
        shape: the weight's.
    """

    attribute: str
    family: str
    shape: torch.Size

    def __call__(self, owner: nn.Module) -> Any:
        return made(self.family, self.arguments(owner), self.shape)

    def arguments(self, owner: nn.Module) -> dict[str, Tensor]:
        """The prior's arguments as the owner holds them."""
        start = _buffer(self.attribute, "")
        return {
            name.removeprefix(start): value
            for name, value in owner._buffers.items()
            if name.startswith(start) and value is not None
        }


def weight_priors(module: nn.Module) -> dict[str, dict[str, Any]]:
    """The priors of a module's weights as JSON, by the weight's name; none where there are none.

    Latents that a part's own class makes are the part's, and none of these.

    Raises:
        TypeError: a weight whose prior was given by hand, which has no description.

    Example:
        >>> weight_priors(nn.Linear(1, 1))
        {}
    """
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
    """The class that a module was written as, before it was made a `PyroModule`.

    Example:
        >>> import pyro.distributions as dist
        >>> written_class(with_prior(nn.Linear(1, 1), dist.Normal(0.0, 1.0))).__name__
        'Linear'
    """
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


def _stays(owner: nn.Module, weight: Tensor) -> bool:
    """Whether only its full name, or a function, gives a parameter a prior."""
    return weight.dim() == 0 or isinstance(owner, _NORMS)


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
    blank = PyroModule()
    for name, value in (
        ("_pyro_name", ""),
        ("_pyro_context", blank._pyro_context),
        ("_pyro_params", OrderedDict()),
        ("_pyro_samples", OrderedDict()),
    ):
        vars(part)[name] = value


@cache
def _pyro_class(kind: Any) -> Any:
    if type(kind) is type:
        return PyroModule[kind]
    # Pyro's own way cannot join its metaclass with that of abstract classes.
    both = type("_PyroABCMeta", (type(PyroModule), type(kind)), {})
    return both(f"Pyro{kind.__name__}", (kind, PyroModule), {})


def explainer_with_prior(
    program: Program, prior: Prior | None, parts: tuple[str, ...] = PARTS
) -> Program:
    """An explainer whose networks have priors, as :func:`with_prior`, but not a copy of it.

    Args:
        program: just built, and in no use yet.
        prior: of all weights of the parts that learn, or by part; None for none.
        parts: those that may have one.

    Raises:
        TypeError, ValueError: as :func:`with_prior`; a part that may have none.

    Example:
        >>> explainer_with_prior(nn.Linear(1, 1), None)
        Linear(in_features=1, out_features=1, bias=True)
    """
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
        learn = [
            name
            for name in parts
            if any(p.requires_grad for p in getattr(program, name).parameters())
        ]
        prior = dict.fromkeys(learn, prior)
    put_priors(program, chosen_priors(program, prior))
    return program


def name_by_place(program: PyroModule) -> None:
    """Let each Pyro part name its latents by where it stands, and draw them once a call.

    Pyro does so along an unbroken line of Pyro modules. Below a plain torch module a part would
    name its latents by itself alone, `weight` for `selector.network.weight`, so that two of them
    could not be distinguished.

    Args:
        program: the whole, which is not being called.

    Example:
        >>> import pyro, torch
        >>> from lexppl.models import HorseshoeLinear
        >>> class Program(PyroModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.selector = torch.nn.Sequential(HorseshoeLinear(2, 1))
        ...         name_by_place(self)
        ...     def forward(self, x):
        ...         return self.selector(x)
        >>> with torch.random.fork_rng():
        ...     trace = pyro.poutine.trace(Program()).get_trace(torch.zeros(1, 2))
        >>> trace.stochastic_nodes[0]
        'selector.0.global_scale'
    """
    for path, part in program.named_modules():
        if path and isinstance(part, PyroModule):
            part._pyro_name = path
            part._pyro_context = program._pyro_context
