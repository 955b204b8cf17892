"""Runs of fitted programs on rows: the one loop over replicates and chunks, and labelled arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from lexppl.argument_checks import check_binary, int_at_least, shaped
from lexppl.distributions.support import distribution_targets
from lexppl.explanation.names import entry_names
from lexppl.explanation.program_sites import FEATURE, sites_of
from lexppl.inference.batches import x_and_y
from lexppl.inference.objective.dependence import observed_without_y
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import (
    FittedProgram,
    drawing,
    layer_widths,
    row_chunks,
    rows_at_once,
)
from lexppl.inference.training.result import FitResult

FEW = 4  # Rows that show what a program observes without y

Reader = Callable[[ParticleTrace], Tensor]
"""From a run of L masks on B rows to values `(L or 1, B, …)`."""

ReadRuns = Callable[[Iterator[ParticleTrace], slice], Mapping[str, Tensor]]
"""From the runs of a chunk of rows to values `(B, …)` by name."""


def read_runs(
    result: FitResult,
    args: tuple[Tensor, ...],
    read: ReadRuns,
    draws: int,
    imputations: int,
    seed: int,
    *,
    most: int | None = None,
    forced: Callable[[int, slice], Callable[[Site], Tensor | None]] | None = None,
) -> dict[str, Tensor]:
    """Values `(R, N, …)` by name that `read` takes from the runs of each chunk of rows, by
    replicate.

    A program whose rows share latents has a run for each of their D draws, any other one run of D
    masks; `forced` gives the values of sites by replicate and chunk.
    """
    x = args[0]
    chunk = rows_at_once(x, draws * imputations, most, layers=layer_widths(result.model))
    few = tuple(column[:FEW] for column in args)
    beside = observed_without_y(ParticleProgram(result.model, None, (*few, None)[:2]))
    by_chain: list[dict[str, Tensor]] = []
    with drawing(seed, x.device):
        for chain, (model, guide) in enumerate(zip(result.models, result.guides, strict=True)):
            program = FittedProgram(model, guide, (x[:1],), draws)
            parts: list[Mapping[str, Tensor]] = []
            for rows in row_chunks(len(x), chunk):
                draw = None if forced is None else forced(chain, rows)
                part_args = (*(column[rows] for column in args), None)
                runs = program.runs(part_args[:2], imputations, draw=draw)
                weighed = (replace(run, beside=beside) if beside else run for run, _ in runs)
                parts.append(read(weighed, rows))
            by_chain.append({n: torch.cat([part[n] for part in parts]) for n in parts[0]})
        return {name: torch.stack([v[name] for v in by_chain]) for name in by_chain[0]}


def draws(
    result: FitResult,
    x: Any,
    y: Any = None,
    *,
    read: Mapping[str, Reader],
    masks: Any = None,
    draws: int = 50,
    imputations: int = 1,
    seed: int = 0,
    folds: Any = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> xr.Dataset:
    """What readers take from runs of a fit on rows, by chain, draw and row: a metric of your own
    is arithmetic on them.

    Use it for a metric of your own: each value has its chain, draw and row, so that a metric is
    arithmetic on names. Tables and scores of the library are made from the same draws.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(small, (x, y), epochs=3, progress=False)
        >>> score = {"score": read_log_likelihood}
        >>> kept = draws(result, x, read={"mask": read_mask}, draws=20).mask
        >>> hidden = kept.where(kept.feature != "x1", 0)
        >>> gain = draws(result, x, y, masks=kept, read=score).score
        >>> gain = gain - draws(result, x, y, masks=hidden, read=score).score
        >>> gain.mean(("draw", "row")).shape
        (1,)

    A run has D masks, `z_d ~ p(z | x, θ_d)` or the `masks` given, and K imputations of each.
    Readers have the run's sites, with their distributions and values: :func:`read_mask`,
    :func:`read_prediction`, :func:`read_log_likelihood`, or a function of your own.

    Args:
        result: of :func:`lexppl.fit`.
        x: rows `(N, *event)`; or a data set, or a pair `(x, y)`.
        y: labels or responses `(N,)`, for readers that need them.
        read: by name, functions from a run to values `(D or 1, B, …)`.
        masks: 0 and 1 for the first mask site, `(D, N, G)`, or by `chain` too, as of an earlier
            call; drawn if None.
        draws: D, where masks are drawn.
        imputations: K.
        folds: :class:`lexppl.evaluation.Folds` of the rows, each by the replicate that holds it
            out, in one chain.
        dims: by name, those of a reader's values after draw and row.

    Returns:
        (chain, draw, row, …): `feature` and `class` as their readers have them, else
        `<name>_dim_<i>`.

    Raises:
        ValueError, TypeError: rows unlike those of the fit, counts below 1, masks of another shape.
    """
    x, y = x_and_y(x, y)
    result.check(x, y)
    count, imputations = int_at_least("draws", draws), int_at_least("imputations", imputations)
    seed = int_at_least("seed", seed, 0)
    strange = sorted({*(dims or {})} - set(read))
    if not read or strange:
        names = f"dims names {strange}, and read" if strange else "read"
        raise ValueError(f"{names} has readers of {list(read)}: give read={{name: reader}}")
    forced_masks = forced = None
    if masks is not None:
        with drawing(seed, x.device):
            site = sites_of(result.model, x[:1]).masks[0]
        forced_masks = _masks(masks, len(x), site.entries, result.replicates)
    if folds is not None:
        return _of_folds(result, x, y, folds, forced_masks, read, count, imputations, seed, dims)
    count = count if forced_masks is None else forced_masks.shape[1]
    if forced_masks is not None:
        forced = partial(_forced, forced_masks.to(x), site.name)

    def by_row(runs: Iterator[ParticleTrace], _: slice) -> dict[str, Tensor]:
        """Values `(B, D, …)`."""
        values: dict[str, list[Tensor]] = {name: [] for name in read}
        for run in runs:
            for name, reader in read.items():
                values[name].append(torch.as_tensor(reader(run)).detach())
        repeats = count // len(next(iter(values.values())))
        return {
            name: torch.cat([v.expand(repeats, *v.shape[1:]) for v in parts]).transpose(0, 1)
            for name, parts in values.items()
        }

    args = (x,) if y is None else (x, y)
    values = read_runs(result, args, by_row, count, imputations, seed, forced=forced)
    variables, coords = {}, {}
    for name, value in values.items():
        usual = [OF_READERS[read[name]]] if read[name] in OF_READERS and value.dim() == 4 else []
        extra = list((dims or {}).get(name, usual))
        extra = extra or [f"{name}_dim_{i}" for i in range(value.dim() - 3)]
        variables[name] = (("chain", "draw", "row", *extra), value.transpose(1, 2).cpu().numpy())
        if extra == [FEATURE]:
            coords[FEATURE] = [str(n) for n in entry_names(result, value.shape[-1], None)]
    sizes = {"chain": result.replicates, "draw": count, "row": len(x)}
    return xr.Dataset(variables, {**{dim: np.arange(n) for dim, n in sizes.items()}, **coords})


def _of_folds(
    result: FitResult, x: Tensor, y: Tensor | None, folds: Any, masks: Tensor | None, *how: Any
) -> xr.Dataset:
    read, count, imputations, seed, dims = how
    parts, places = [], []
    for number, (replicate, rows) in enumerate(folds.each(result)):
        fold_masks = None if masks is None else masks[number if len(masks) > 1 else 0][:, rows]
        of_y = None if y is None else y[rows]
        options = {"draws": count, "imputations": imputations, "seed": seed + number}
        parts.append(
            draws(replicate, x[rows], of_y, read=read, masks=fold_masks, dims=dims, **options)
        )
        places.append(rows)
    order = torch.cat(places).argsort().cpu().numpy()
    return xr.concat(parts, "row").isel(row=order).assign_coords(row=np.arange(len(x)))


def _masks(masks: Any, rows: int, entries: int, replicates: int) -> Tensor:
    """Masks `(1 or R, D, N, G)`."""
    if isinstance(masks, xr.DataArray):
        masks = masks.transpose(..., "draw", "row", masks.dims[-1]).values
    values = torch.as_tensor(masks)
    shape = ("D", rows, entries)
    shaped("masks", values, shape, *((r, *shape) for r in dict.fromkeys((1, replicates))))
    values = values if values.dim() == 4 else values.unsqueeze(0)
    check_binary("masks", values, (rows, entries), draws=True)
    return values


def _forced(masks: Tensor, name: str, chain: int, rows: slice) -> Callable[[Site], Tensor | None]:
    """Values of a chunk's masks: all D at once, or one more at each run of shared latents."""
    chain_masks = masks[chain if len(masks) > 1 else 0][:, rows]
    runs = iter(chain_masks.split(1))

    def draw(site: Site) -> Tensor | None:
        if site.name != name:
            return None
        return chain_masks if site.distribution.batch_shape[-2] == len(chain_masks) else next(runs)

    return draw


def read_mask(run: ParticleTrace) -> Tensor:
    """The first mask of a run, `(L, B, G)`."""
    masks = [s.value for s in run.mask_sites if len(s.distribution.event_shape) == 1]
    if not masks:
        raise ValueError("the program has no mask of event shape (G,): read its latents by name")
    return torch.as_tensor(masks[0])


def outcome(run: ParticleTrace, site: str = "y") -> Tensor:
    """Probabilities `(K, L, B, C)` of a run's outcome, or its mean `(K, L, B)`; K or L may be 1."""
    if site not in run.sites:
        raise ValueError(f"the program has no sample site {site!r}; it has {list(run.sites)}")
    distribution = run.sites[site].distribution
    values = distribution_targets(distribution)
    return values.reshape((1,) * (3 - len(distribution.batch_shape)) + tuple(values.shape))


def read_prediction(run: ParticleTrace) -> Tensor:
    """`1/K Σ_k p(y | x̃_k)` of a run, probabilities `(L, B, C)` or means `(L, B)`."""
    return outcome(run).mean(0)


def log_weights(run: ParticleTrace) -> Tensor:
    """`log p(y | x̃)` by particle, `(…, K, L, B)`, labels first of probabilities; K or L may be 1;
    with what is observed beside y."""
    weight = run.log_weight
    if weight is None:
        raise ValueError("the program observes nothing in mask_particles(): y has no likelihood")
    if weight.shape[-1] != len(run.arguments[0]):
        raise ValueError(
            "the program observes all rows together, in one event or with masks that they share: "
            "no row has its own likelihood; explain(program, x, y) weighs such masks by all rows"
        )
    return weight.reshape((1,) * (3 - weight.dim()) + tuple(weight.shape))


def log_mean(run: ParticleTrace, dims: tuple[int, ...]) -> Tensor:
    """log of the mean weight over particles of these dimensions."""
    weights = log_weights(run)
    return torch.logsumexp(weights, dims) - math.log(math.prod(weights.shape[d] for d in dims))


def log_likelihood(runs: Iterable[ParticleTrace]) -> Tensor:
    """`log 1/(DLK) Σ w` of D runs, of each row, `(…, B)`, given what is observed beside y (o):
    `log mean p(y, o | x̃) − log mean p(o | x̃)`."""
    every = list(runs)

    def mean(traces: Sequence[ParticleTrace]) -> Tensor:
        log_means = torch.stack([log_mean(run, (-3, -2)) for run in traces])
        return torch.logsumexp(log_means, 0) - math.log(len(log_means))

    if not every[0].beside:
        return mean(every)
    return mean(every) - mean([run.weighing(run.beside) for run in every])


def read_log_likelihood(run: ParticleTrace) -> Tensor:
    """`log 1/K Σ_k w_k` of a run, `(L, B)`: log p(y | x, z), under the terms of the bound, given
    what is observed beside y."""
    mean = log_mean(run, (-3,))
    return mean - log_mean(run.weighing(run.beside), (-3,)) if run.beside else mean


OF_READERS: Mapping[Any, str] = {read_mask: FEATURE, read_prediction: "class"}
