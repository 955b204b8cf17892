"""Which parameters a weight decay leaves alone: those that have a distribution to obey."""

import warnings
from collections.abc import Mapping
from typing import Any

from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import constraints
from torch.optim import Optimizer

from lexppl.effects import MASK_PLATE
from lexppl.inference.pyro_parameters import PyroParams
from lexppl.inference.stages import LossTerm


def parameters_with_a_prior(term: LossTerm, nodes: Mapping[str, Any]) -> list[Tensor]:
    """The parameters of a term that the bound itself holds in place: a guide's own, constrained
    ones, those of `pyro.param`, and those observed under a prior, `pyro.sample("w", prior,
    obs=self.w)`."""
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
    values = [
        node["value"]
        for node in nodes.values()
        if node["is_observed"]
        and isinstance(node["value"], Tensor)
        and all(plate.name != MASK_PLATE for plate in node["cond_indep_stack"])
    ]
    return [value.unconstrained() if hasattr(value, "unconstrained") else value for value in values]


def spare_from_decay(optimizer: Optimizer, spared: Mapping[str, Tensor], warns: bool) -> None:
    """Take parameters out of an optimizer's weight decay, into groups of their own."""
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
        warnings.warn(
            f"the weight decay leaves out {sorted(spared)}: parameters of a guide, constrained "
            "ones and those with a prior are held by the bound itself",
            stacklevel=3,
        )
