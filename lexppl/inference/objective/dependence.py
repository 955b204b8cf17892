"""What the density of a site depends on: other rows, their latents, y."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

import pyro
import torch
from torch import Tensor

from lexppl.distributions import uniform_masks
from lexppl.distributions.support import draws_zeros_and_ones
from lexppl.effects import MASK_PLATE
from lexppl.inference.contexts import seeded
from lexppl.inference.objective.grammar import match
from lexppl.inference.objective.listed_latents import refuse_read_unobserved
from lexppl.inference.objective.program import (
    ParticleProgram,
    Program,
    as_called,
    copied_rows,
    sample_nodes,
    sites_of,
)
from lexppl.inference.objective.site import Site


def match_program(program: ParticleProgram) -> None:
    """Match a run of two masks with the grammar, whether or not Pyro validates."""
    device = next((a.device for a in program.args if isinstance(a, Tensor)), "cpu")
    with seeded(0, device), copied_rows(program.args) as rows:
        refuse_masks_of_y(program.called, sample_nodes(program.called, rows), rows)
        run = program.on(rows).run(2)
        match(run.sites, run.guide_sites)
        refuse_read_unobserved(run, lambda draw: program.on(rows).run(2, 1, draw))
    refuse_dependent_rows(program)


def refuse_outside_rows(
    nodes: Mapping[str, Any], program: Program | None, rows: Any, plate: str | None, instead: str
) -> None:
    """Refuse a program with a site outside the plate over rows that is another, or none, on other
    rows: without the first, or on one twice; and one in which rows depend on each other."""
    if program is None:
        return
    fewer = tuple(c[1:] if len(c) > 1 else c.repeat_interleave(2, 0) for c in rows)
    with torch.no_grad():
        others = sample_nodes(as_called(program), fewer)
    for name, node in {**others, **nodes}.items():
        shapes = {sites[name]["fn"].shape() for sites in (nodes, others) if name in sites}
        is_apart = len(shapes) > 1 or not (name in nodes and name in others)
        if is_apart and all(frame.name != plate for frame in node["cond_indep_stack"]):
            raise ValueError(
                f"site {name!r} has an entry for each row and stands outside the plate over rows, "
                f"at dim -1, so that no part of rows stands for all: put it in, or give {instead}"
            )
    run = ParticleProgram(program, None, rows)
    with run.evaluating():  # Batch norm is of the batch in training alone.
        refuse_batch_dependence(run, f", or give {instead}")


def refuse_batch_dependence(program: ParticleProgram, instead: str = "") -> None:
    """Refuse masks of rows, and what is drawn or observed beside them, whose density in a row
    is another where the second half of the rows is the first half again."""
    args, model, size = program.args, program.called, len(program.args[0])
    if size < 2:
        return
    with torch.no_grad(), seeded(0, args[0].device):
        drawn = sample_nodes(model, args)
    sites = [Site.of(node) for node in drawn.values()]
    sites = [s for s in sites if (-1, size) in {(p.dim, p.size) for p in s.plates}]
    if not any(site.is_mask for site in sites):
        return
    place = torch.arange(size, device=args[0].device) % (size // 2)
    changes = _changes(model, drawn, args, tuple(c if c is None else c[place] for c in args))
    again = tuple(c if c is None else c.clone() for c in args)
    by_itself = _changes(model, drawn, args, again)
    for site in sites:
        apart = site.is_penalty or getattr(site.distribution, "couples_rows", False)
        if not apart and changes(site.name, size // 2) and not by_itself(site.name):
            raise ValueError(
                f"the distribution of site {site.name!r} in a row depends on the other rows of "
                f"its batch, such as on their mean: take it from all rows before{instead}"
            )


def refuse_masks_of_y(model: Program, drawn: Mapping[str, Any], args: tuple[Any, ...]) -> None:
    """Refuse a latent of a row, among the nodes of a run, whose distribution depends on y before
    anything is observed."""
    x, *others = args
    if not others or others[0] is None:
        return
    changes = _changes(model, drawn, args, (x, *(column.roll(1, 0) for column in others)))
    for site in map(Site.of, drawn.values()):
        if site.observed and not (site.is_deterministic or site.is_penalty):
            return
        if site.is_mask and changes(site.name):
            raise ValueError(
                f"the distribution of site {site.name!r} depends on y, which is to be predicted "
                "from it: draw it given x alone, and let a guide see y (guide=)"
            )


def _changes(
    program: Program, drawn: Mapping[str, Any], args: tuple[Any, ...], others: tuple[Any, ...]
) -> Callable[..., bool]:
    """Whether a site's density in the first rows is another with other arguments, given the
    latents of a run."""
    latents = {name: n["value"] for name, n in drawn.items() if not n["is_observed"]}
    held = pyro.poutine.condition(program, data=latents)

    @cache
    def run(columns: tuple[Any, ...]) -> Mapping[str, Any]:
        with torch.no_grad(), seeded(0, args[0].device):
            return sample_nodes(held, columns)

    def is_other(node: Any, rows: int | None) -> bool:
        laws = (node, run(others)[node["name"]])
        first, second = (law["fn"].log_prob(law["value"])[..., :rows] for law in laws)
        return not torch.allclose(first, second, 1e-4, 1e-5, equal_nan=True)

    def changes(name: str, rows: int | None = None) -> bool:
        # A law may state no density, or none of these values; copied rows may have no law.
        with suppress(NotImplementedError, ValueError, LookupError, RuntimeError):
            # The same arguments are run again only for random numbers that are the program's own.
            return is_other(drawn[name], rows) and is_other(run(args)[name], rows)
        return False

    return changes


def observed_without_y(program: ParticleProgram) -> frozenset[str]:
    """What a program of (x, y) observes when it is called as program(x, None): x itself, a second
    response, a `pyro.factor` of the masks; a penalty is a price and not among them.

    Everything after a fit is given these: E[z | x] is E[z | x, these], and log p(y | x) is
    log p(y | x, these). Empty for a program that cannot be called without y.

    Raises:
        ValueError: the density of one of them changes with y.
    """
    x, *others = program.args
    if not others:
        return frozenset()

    def sites_at(y: Any, held: Program, seed: int, masks: int = 1) -> dict[str, Site]:
        with program.evaluating(), torch.no_grad(), seeded(seed, x.device):
            return sites_of(held, (x, y, *others[1:]), masks)

    try:
        sites = sites_at(None, program.called, 0)
    except (TypeError, AttributeError, ValueError, LookupError, NotImplementedError, RuntimeError):
        return frozenset()
    observed = frozenset(
        name
        for name, site in sites.items()
        if site.observed and not (site.is_deterministic or site.is_penalty)
    )
    if not observed:
        return observed
    of_y = {name for name in sites if is_response(name)}
    if others[0] is not None:
        of_y |= {name for name, s in sites_at(others[0], program.called, 0).items() if s.observed}
    # Under the uniform law of masks no value is rare.
    sites = sites_at(None, program.called, 0, PROBE_MASKS)
    drawn = {n: s for n, s in sites.items() if not s.observed and n not in of_y}
    with seeded(0, x.device):
        latents = {n: s.value if (z := evenly(s)) is None else z for n, s in drawn.items()}
    held = pyro.poutine.condition(program.called, data=latents)
    first, *more = [sites_at(None, held, seed, PROBE_MASKS) for seed in (0, 0, 1)]
    if others[0] is not None:
        more.append(sites_at(others[0], held, 0, PROBE_MASKS))
    for name in observed:
        known = first[name].log_prob()
        alike = [
            name in run and torch.allclose(run[name].log_prob(), known, 1e-4, 1e-5, equal_nan=True)
            for run in more
        ]
        if alike[0] and not all(alike):
            raise ValueError(
                f"site {name!r} is observed without y too, and its density changes with y, so that "
                "the masks given x alone would be given y: observe it only where y is given, by "
                "`if y is not None:`, or let it depend on x alone"
            )
    return observed


def is_response(name: str) -> bool:
    """Whether a site is a response by its name, `y` or `y_…`."""
    return name.split("_", maxsplit=1)[0] == RESPONSE


RESPONSE = "y"  # The site of the response, by the convention of explainers
PROBE_ROWS, PROBE_MASKS = 8, 16  # Of the runs that show whether a row depends on others' latents
PROBE_NUMBERS = 2**20  # Of rows of all those masks, where two masks have fewer


def refuse_dependent_rows(program: ParticleProgram) -> None:
    """Refuse a site in a plate over rows outside the log whose density in a row changes with the
    latents of other rows: of those with a 0, or a 1, in a binary digit of their number."""
    few = tuple(c[:PROBE_ROWS] if isinstance(c, Tensor) and c.dim() else c for c in program.args)
    if not (few and isinstance(few[0], Tensor) and few[0].dim() and len(few[0]) > 1):
        return
    rows, dependent = len(few[0]), ""
    fitting = PROBE_NUMBERS // few[0].numel() // 2 * 2
    masks = max(2, min(PROBE_MASKS, fitting))

    def sites_at(values: Mapping[str, Tensor], seed: int = 0) -> dict[str, Site]:
        held = program.called
        held = pyro.poutine.condition(held, data=dict(values)) if values else held
        with program.evaluating(), torch.no_grad(), seeded(seed, few[0].device):
            return sites_of(held, few, masks)

    def densities(values: Mapping[str, Tensor], seed: int = 0) -> dict[str, Tensor]:
        sites = sites_at(values, seed)
        return {name: sites[name].distribution.log_prob(sites[name].value) for name in of_rows}

    # A few rows may be no rows of the program, or a law state no density.
    with suppress(NotImplementedError, ValueError, LookupError, RuntimeError, TypeError):
        sites = sites_at({})
        if not any(s.in_particles and _is_apart(s, rows) for s in sites.values()):
            return
        # Under the uniform law of masks no value is rare; in half of the masks rows have the same.
        alike = {}
        for name, site in sites.items():
            with seeded(0, few[0].device):
                even = evenly(site)
            if even is not None and _is_apart(site, rows):
                place = even.dim() - len(site.distribution.event_shape) - 2
                first, second = even.chunk(2, place)
                second = second.narrow(place + 1, 0, 1).expand_as(first)
                alike[name] = torch.cat([first, second], place)
        sites = sites_at(alike)
        sites |= {name: replace(sites[name], observed=False) for name in alike}
        of_rows = [s.name for s in sites.values() if s.in_particles and _is_apart(s, rows)]
        # Clones, as a straight-through value remembers what it was made from.
        drawn = {n: s.value for n, s in sites.items() if not s.observed}
        values = {name: value.clone() for name, value in drawn.items() if value is not None}
        known = densities(values)
        again = densities(values, 1)
        steady = all(torch.equal(known[name], again[name]) for name in of_rows)
        for turn in range(2 * (rows - 1).bit_length() if steady else 0):
            moves = (torch.arange(rows, device=few[0].device) >> turn // 2) % 2 == turn % 2
            after = densities({n: _rolled(v, moves, sites[n]) for n, v in values.items()})
            for name in of_rows:
                before, now = (d[name].expand_as(known[name])[..., ~moves] for d in (known, after))
                if not torch.allclose(now, before, 1e-4, 1e-5, equal_nan=True):
                    dependent = name
    if dependent:
        raise ValueError(
            f"site {dependent!r} depends in a row on the latents of other rows, such as their "
            "masks, and its plate over rows, outside mask_particles(), declares that it does not: "
            "enter mask_particles() before that plate, so that the rows share one log"
        )


def evenly(site: Site) -> Tensor | None:
    """A draw of a mask's uniform law; None of other sites."""
    if not site.is_mask:
        return None
    law = site.distribution
    if not law.event_shape and draws_zeros_and_ones(law):
        return torch.bernoulli(torch.full_like(torch.as_tensor(site.value), 0.5))
    try:
        draw: Tensor = uniform_masks(law).sample()
    except TypeError:
        return None
    return draw


def _is_apart(site: Site, rows: int) -> bool:
    """Whether a site's rows have logs of their own, and densities without the other rows."""
    outer = site.plates[: site.plate_names.index(MASK_PLATE)]
    coupled = site.is_penalty or getattr(site.distribution, "couples_rows", False)
    return not coupled and any((p.dim, p.size) == (-1, rows) for p in outer)


def _rolled(value: Tensor, moves: Tensor, site: Site) -> Tensor:
    """A latent's value, that of the particle before in the moved rows."""
    event = len(site.distribution.event_shape)
    inside = site.in_particles and _is_apart(site, len(moves))
    if not inside or value.dim() < 2 + event or value.shape[-1 - event] != len(moves):
        return value
    return torch.where(moves.reshape(-1, *[1] * event), value.roll(1, -2 - event), value)
