"""Pyro's automatic guides in files: by class, settings and the sites that they cover."""

from collections.abc import Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import torch
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuide,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from torch import Tensor

from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.automatic_guides import set_up
from lexppl.threads import evaluating

AUTOMATIC, SITES = "automatic", "sites"
ROW = "guide_row."  # What names of columns begin with, on zeros of which a guide is run
# Classes that a file may name.
REBUILT = (
    *(AutoDelta, AutoDiagonalNormal, AutoNormal),
    *(AutoLowRankMultivariateNormal, AutoMultivariateNormal),
)
KINDS = MappingProxyType({kind.__name__: kind for kind in REBUILT})
# Arguments of theirs, and what they are called afterwards.
SETTINGS = MappingProxyType({"init_scale": "_init_scale", "rank": "rank"})


def described_guide(guide: AutoGuide) -> dict[str, Any]:
    """An automatic guide that has been run as JSON, its sites in the order of its numbers; of
    one that no file can rebuild its class and its sites alone."""
    name, sites = type(guide).__name__, {SITES: _sites(guide)}
    if type(guide) not in REBUILT or guide.create_plates is not None:
        return {"class": name, "why": f"no file rebuilds {name} as it is", **sites}
    held = vars(guide)
    settings = {name: held[called] for name, called in SETTINGS.items() if called in held}
    return {AUTOMATIC: name, "settings": settings, **sites}


def rows_seen(guide: AutoGuide) -> dict[str, Tensor]:
    """A row of zeros of each column that an automatic guide was run on, by name."""
    columns = () if guide.prototype_trace is None else guide.prototype_trace.nodes["_INPUT"]["args"]
    return {f"{ROW}{i}": column.new_zeros(1, *column.shape[1:]) for i, column in enumerate(columns)}


def rebuilt_guide(
    described: Mapping[str, Any], program: Any, weights: Mapping[str, Tensor]
) -> AutoGuide:
    """An automatic guide, yet to be run, from what :func:`described_guide` returned."""
    name, settings = described[AUTOMATIC], described["settings"]
    if name not in list(KINDS):
        raise ValueError(f"its guide is a {name!r}, and must be one of {list(KINDS)}")
    rank = settings.get("rank")
    if rank is not None and not any(rank in tensor.shape for tensor in weights.values()):
        raise ValueError(f"its guide is of rank {rank}, which its weights are not")
    return KINDS[name](program, **{name: settings[name] for name in SETTINGS if name in settings})


def settle_guide(
    guide: AutoGuide, described: Any, program: Any, rows: Mapping[str, Tensor]
) -> None:
    """Run an automatic guide that has not been, as `fit` does, and refuse sites unlike the
    file's."""
    saved = described[SITES]
    if guide.prototype_trace is None:
        keep_parameters_local(program)
        with seeded(0), program_settings(validate=False), evaluating(program):
            set_up(guide, [program], tuple(torch.cat([rows[n], rows[n]]) for n in sorted(rows)))
    found = _sites(guide)
    for place, (old, new) in enumerate(zip_longest(saved, found)):
        if old != new:
            raise ValueError(
                f"site {place + 1} of the guide was {_named(old)} and is {_named(new)}, and its "
                "numbers stand in the order of its sites: give the program that was fitted, and a "
                "guide that has not been run"
            )


def _sites(guide: AutoGuide) -> list[dict[str, Any]]:
    if guide.prototype_trace is None:
        return []
    return [
        {
            "name": name,
            "shape": list(node["value"].shape),
            "event_dim": node["fn"].event_dim,
            "support": " ".join(str(node["fn"].support).split()),
            "plates": [[frame.name, frame.size] for frame in node["cond_indep_stack"]],
        }
        for name, node in guide.prototype_trace.iter_stochastic_nodes()
    ]


def _named(site: Any) -> str:
    return "none" if site is None else f"{site['name']!r} {tuple(site['shape'])}, {site['support']}"
