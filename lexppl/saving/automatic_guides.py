"""Pyro's automatic guides in files: by class, settings and the sites that they cover."""

from collections.abc import Mapping
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

import pyro
import torch
from pyro.infer.autoguide import (
    AutoDelta,
    AutoDiagonalNormal,
    AutoGuide,
    AutoGuideList,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)
from torch import Tensor

from lexppl.evaluation_mode import evaluating
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.posterior.automatic_guides import set_up
from lexppl.inference.training.preparation import floating_type
from lexppl.saving.fields import AUTOMATIC, ROWS, SITES, guide_rows, guide_settings

PARTS = MappingProxyType(
    {
        kind.__name__: kind
        for kind in (
            AutoDelta,
            AutoDiagonalNormal,
            AutoLowRankMultivariateNormal,
            AutoMultivariateNormal,
            AutoNormal,
        )
    }
)
KINDS = MappingProxyType({**PARTS, AutoGuideList.__name__: AutoGuideList})
"""Classes that a file may name."""


def described_guide(guide: AutoGuide) -> dict[str, Any]:
    """An automatic guide as JSON; of one that no file can rebuild its class and its sites alone.

    The sites stand in their order, which is that of the guide's numbers.

    Args:
        guide: which has been run.

    Example:
        >>> import pyro.distributions as dist
        >>> guide = AutoNormal(lambda x: pyro.sample("slope", dist.Normal(0.0, 1.0)))
        >>> _ = guide(torch.zeros(2, 3))
        >>> described_guide(guide)["sites"][0]["support"], described_guide(guide)["settings"]
        ('Real()', {'init_scale': 0.1})
    """
    name, parts = type(guide).__name__, list(guide) if type(guide) is AutoGuideList else []
    seen: dict[str, Any] = {}
    if guide.prototype_trace is not None:
        columns = guide.prototype_trace.nodes["_INPUT"]["args"]
        types = [str(column.dtype).removeprefix("torch.") for column in columns]
        shapes = [list(column.shape[1:]) for column in columns]
        rows = [{"shape": s, "type": t} for s, t in zip(shapes, types, strict=True)]
        seen = {ROWS: rows, SITES: _sites(guide)}
    kinds = {type(part) for part in parts} or {type(guide)}
    if kinds - set(PARTS.values()) or any(each.create_plates for each in (guide, *parts)):
        return {"class": name, "why": f"no file rebuilds {name} as it is", **seen}
    settings = {"parts": [described_guide(part) for part in parts]} if parts else {}
    settings |= {
        name: vars(guide)[held]
        for name, held in (("init_scale", "_init_scale"), ("rank", "rank"))
        if held in vars(guide)
    }
    return {AUTOMATIC: name, "settings": settings, **seen}


def rebuilt_guide(
    described: Mapping[str, Any],
    program: Any,
    weights: Mapping[str, Tensor],
    kinds: Mapping[str, type[AutoGuide]] = KINDS,
) -> AutoGuide:
    """An automatic guide, yet to be run, from what :func:`described_guide` returned.

    Args:
        described: of the file.
        program: the loaded one.
        weights: of the guide.
        kinds: classes by name.

    Raises:
        ValueError: another class, settings that it or its weights have not.
    """
    name, settings, _ = guide_settings(described, kinds)
    rank = settings.get("rank")
    if rank is not None and not any(rank in tensor.shape for tensor in weights.values()):
        raise ValueError(f"its guide is of rank {rank}, which its weights are not")
    parts = settings.pop("parts", ())
    guide = kinds[name](program, **settings)
    for part in parts:
        seen = pyro.poutine.block(program, expose=guide_settings(part, PARTS)[2])
        guide.append(rebuilt_guide(part, seen, weights, PARTS))
    return guide


def settle_guide(guide: AutoGuide, described: Any, program: Any, shape: tuple[int, ...]) -> None:
    """Run an automatic guide that has not been, as `fit` does, on rows of zeros, and hold its
    sites against the file's.

    Args:
        guide: rebuilt, or the user's.
        described: of the file; files of before have no sites.
        program: the loaded one.
        shape: of a row of x.

    Raises:
        ValueError: other sites, or another order, shape or support of them.
    """
    told = described.get(SITES) if isinstance(described, dict) else None
    rows = [(shape, floating_type([program]))] if told is None else guide_rows(described)
    if told is None and guide.prototype_trace is not None:
        fresh = AutoDelta(program)
        settle_guide(fresh, None, program, shape)
        told = _sites(fresh)
    if guide.prototype_trace is None:
        keep_parameters_local(program)
        with seeded(0), program_settings(validate=False), evaluating(program):
            set_up(guide, [program], tuple(torch.zeros(2, *s, dtype=d) for s, d in rows))
    found = [] if guide.prototype_trace is None else _sites(guide)
    for place, (old, new) in enumerate(zip_longest(found if told is None else told, found)):
        if old != new:
            raise ValueError(
                f"site {place + 1} of the guide was {_named(old)} and is {_named(new)}, and its "
                "numbers stand in the order of its sites: give the program that was fitted, and a "
                "guide that has not been run"
            )


def _sites(guide: AutoGuide) -> list[dict[str, Any]]:
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
