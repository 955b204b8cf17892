"""How strongly each parameter is decayed, and which a decay leaves alone: those that have a
distribution of their own to obey."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import constraints
from torch.optim import Optimizer

from lexppl.argument_checks import finite_float
from lexppl.effects import MASK_PLATE
from lexppl.inference.pyro_parameters import PyroParams
from lexppl.inference.stages import LossTerm, TrainingModules

Decay = float | Sequence[float]
"""A number, or one for each replicate."""


def decays_by_parameter(
    given: Decay | Mapping[str, Decay],
    modules: TrainingModules,
    replicates: int,
    otherwise: float,
) -> dict[str, tuple[float, ...]]:
    """The weight decay of each parameter that the fit's own optimizer moves, by replicate.

    A part is named by the path of its module or parameter in a program, as `"selector"` for
    `model.selector`, and has all below it; of several names the longest counts.

    Args:
        given: a decay for all, or by part.
        modules: of one replicate.
        replicates: R.
        otherwise: the decay of what is not named.

    Returns:
        by the parameter's name in the modules, R numbers.

    Raises:
        ValueError: a name that no such parameter has, a decay that is negative or not finite,
            other than R of them, two names for a parameter that programs share.
    """
    parts = given if isinstance(given, Mapping) else {"": given}
    numbers = {part: _by_replicate(part, decay, replicates) for part, decay in parts.items()}
    names = {id(parameter): name for name, parameter in modules.named_parameters()}
    terms = [t for stage in modules.stages if stage.optimizer is None for t in stage.terms]
    chosen: dict[str, str] = {}
    used: set[str] = set()
    known: set[str] = set()
    for term in terms:
        learned = modules.learned_by(term)
        for name in learned:
            chosen.setdefault(name, "")
        for path, parameter in _paths(term):
            name = names.get(id(parameter), "")
            if name not in learned:
                continue
            known.add(path.split(".")[0])
            own = max((p for p in parts if _is_below(path, p)), key=len, default="")
            used.add(own)
            if own and chosen[name] not in ("", own):
                raise ValueError(
                    f"weight_decay names {path!r} twice, as {chosen[name]!r} and {own!r}: programs "
                    "share it; give it one name"
                )
            chosen[name] = own or chosen[name]
    unknown = sorted(set(parts) - used - {""})
    if unknown:
        raise ValueError(
            f"weight_decay names {unknown}, which are no parts that the fit's optimizer moves; "
            f"those are {sorted(known)}, and what is within them"
        )
    usual = numbers.get("", (otherwise,) * replicates)
    return {name: numbers[part] if part else usual for name, part in chosen.items()}


def _by_replicate(part: str, decay: Any, replicates: int) -> tuple[float, ...]:
    name = f"weight_decay of {part!r}" if part else "weight_decay"
    if isinstance(decay, int | float):
        return (finite_float(name, decay, least=0.0),) * replicates
    numbers = tuple(finite_float(name, number, least=0.0) for number in decay)
    if len(numbers) != replicates:
        raise ValueError(
            f"{name} must be a number or one for each of {replicates} replicates; there are "
            f"{len(numbers)}"
        )
    return numbers


def _paths(term: LossTerm) -> list[tuple[str, Tensor]]:
    """The parameters of a term's program by their paths, shared ones by each."""
    if not isinstance(term.model, nn.Module):
        return []
    # Pyro keeps a constrained parameter under a name of its own.
    return [
        (path.removesuffix("_unconstrained"), parameter)
        for path, parameter in term.model.named_parameters(remove_duplicate=False)
    ]


def _is_below(path: str, part: str) -> bool:
    return path == part or path.startswith(f"{part}.")


class PartDecay:
    """An L2 term of the gradient, `g + λ_r θ`, with a λ for each parameter and replicate, as
    Adam's `weight_decay` adds one for all.

    Args:
        parameters: by name, each `(R, …)` where R is above one.
        decays: by name, R numbers.
        spared: names of parameters that none may move.

    Example:
        >>> weight = nn.Parameter(torch.tensor([[1.0], [2.0]]))
        >>> weight.grad = torch.zeros(2, 1)
        >>> PartDecay({"w": weight}, {"w": (0.0, 0.5)}, spared=()).add()
        >>> weight.grad.flatten()
        tensor([0., 1.])
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        decays: Mapping[str, tuple[float, ...]],
        spared: Collection[str],
    ) -> None:
        chosen = {name: decays[name] for name in parameters if any(decays.get(name, ()))}
        self._terms: list[tuple[Tensor, float | Tensor]] = []
        for name, numbers in chosen.items():
            if name in spared:
                continue
            parameter = parameters[name]
            factor: float | Tensor = numbers[0]
            if len(set(numbers)) > 1:
                factor = parameter.new_tensor(numbers).reshape(-1, *[1] * (parameter.dim() - 1))
            self._terms.append((parameter, factor))
        left_out = sorted(set(spared) & set(chosen))
        if left_out:
            _warn_of(left_out)

    @torch.no_grad()
    def add(self) -> None:
        """Add it to the gradients that there are."""
        for parameter, factor in self._terms:
            if parameter.grad is not None:
                parameter.grad = parameter.grad + factor * parameter


def parameters_with_a_prior(term: LossTerm, nodes: Mapping[str, Any]) -> list[Tensor]:
    """The parameters of a term that the bound itself holds in place.

    - a guide's (the location and log-scale of an `AutoNormal`, of which a decay makes a narrower
      posterior); what the guide shares with the model is the model's;
    - constrained ones, `PyroParam(…, constraint=…)`, whose unconstrained value 0 means nothing;
    - those of `pyro.param`, which the program states as it means them;
    - those observed under a prior, `pyro.sample("w", prior, obs=self.w)`.

    Args:
        term: the program, its guide and its objective.
        nodes: the sample nodes of the model, by name.
    """
    model, guide = term.model, term.guide
    own = list(model.parameters()) if isinstance(model, nn.Module) else []
    known = {id(p) for p in own}
    found: list[Tensor] = []
    if isinstance(guide, nn.Module):
        found += [p for p in guide.parameters() if id(p) not in known]
    if isinstance(model, nn.Module):
        found += _constrained(model)
        found += [
            p for part in model.modules() if isinstance(part, PyroParams) for p in part.parameters()
        ]
        found += [p for p in _under_a_prior(nodes) if id(p) in known]
    return found


def _constrained(model: nn.Module) -> list[Tensor]:
    return [
        part._parameters[f"{name}_unconstrained"]
        for part in model.modules()
        if isinstance(part, PyroModule)
        for name, (constraint, _) in part._pyro_params.items()
        if constraint is not constraints.real and f"{name}_unconstrained" in part._parameters
    ]


def _under_a_prior(nodes: Mapping[str, Any]) -> list[Tensor]:
    """Values observed outside the particle plates, as the parameters that they are."""
    values = [
        node["value"]
        for node in nodes.values()
        if node["is_observed"]
        and isinstance(node["value"], Tensor)
        and all(plate.name != MASK_PLATE for plate in node["cond_indep_stack"])
    ]
    return [value.unconstrained() if hasattr(value, "unconstrained") else value for value in values]


def spare_from_decay(optimizer: Optimizer, spared: Mapping[str, Tensor], warns: bool) -> None:
    """Take parameters out of an optimizer's weight decay, into groups of their own.

    Args:
        optimizer: as it was made; one without weight decay is left as it is.
        spared: the parameters by name.
        warns: whether to say so, since the decay was given.
    """
    ids = {id(parameter) for parameter in spared.values()}
    moved = False
    for group in list(optimizer.param_groups):
        own = [p for p in group["params"] if id(p) in ids]
        if not own or not group.get("weight_decay"):
            continue
        moved = True
        others = [p for p in group["params"] if id(p) not in ids]
        if not others:
            group["weight_decay"] = 0.0
            continue
        group["params"] = others
        settings = {k: v for k, v in group.items() if k != "params"}
        optimizer.add_param_group({**settings, "params": own, "weight_decay": 0.0})
    if moved and warns:
        _warn_of(sorted(spared))


def _warn_of(spared: list[str]) -> None:
    warnings.warn(
        f"the weight decay leaves out {spared}: parameters of a guide, constrained ones and those "
        "with a prior are held by the bound itself",
        stacklevel=3,
    )
