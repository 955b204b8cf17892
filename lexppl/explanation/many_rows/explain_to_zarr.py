"""Explain rows chunk by chunk into a Zarr store, in one process or on a cluster."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from torch import Tensor, nn
from tqdm.auto import tqdm

from lexppl.argument_checks import int_at_least
from lexppl.atomic_output import replace_folder
from lexppl.evaluation_mode import evaluating
from lexppl.explanation.explained_rows import BLOCK, Explaining, Sums, TablePart, explained_rows
from lexppl.explanation.given_program import sampled_draws
from lexppl.explanation.many_rows.done_chunks import DoneChunk, DoneChunks
from lexppl.explanation.many_rows.row_source import (
    Piece,
    RowSource,
    encoded_piece,
    rows_in,
    source_of,
)
from lexppl.explanation.many_rows.zarr_posterior import EXTRA, ZarrPosterior
from lexppl.explanation.masks.drawless import needs_draws
from lexppl.explanation.masks.program_sites import ProgramSites, sites_of
from lexppl.explanation.row_plan import LEAST_DRAWS
from lexppl.extras import extra_library
from lexppl.fingerprint import fingerprint
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult
from lexppl.workers import check_workers, fixed_threads, outcomes

if TYPE_CHECKING:
    from lexppl.data import TableEncoding

MOST_BYTES = 2**25
"""What a chunk's masks, means and rows take at most, by default."""
MOST_BLOCKS = 100
"""Of a chunk, by default."""
PARTIAL, STORE = ".partial", "posterior.zarr"


def explain_to_zarr(
    result: FitResult,
    rows: Any,
    path: str | Path,
    *,
    encoding: TableEncoding | None = None,
    with_y: bool = False,
    draws: int | None = None,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    proposals: float | None = None,
    held_out: bool = False,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
    keep_x: bool = True,
    rows_per_chunk: int | None = None,
    client: Any = None,
    jobs: int = 1,
    threads: int = 1,
    overwrite: bool = False,
    progress: bool = True,
) -> Path:
    """Explain rows that do not fit into memory: :func:`lexppl.explain`, chunk by chunk.

    The store is in ArviZ's layout, with the groups and variables of `explain`; rows are numbered
    from 0. :func:`open_posterior` opens it lazily, as do `xarray.open_datatree(path,
    engine="zarr")` and, group by group, `xarray.open_zarr(path, group="sample_stats")`.

    The numbers depend on the row's number and the seed alone, not on chunks, processes or workers.
    Rows are drawn in blocks of 1,000 by their numbers, block b = ⌊row / 1000⌋ from the seed
    `numpy.random.SeedSequence(seed, spawn_key=(chain, 0, b))` (of masks given y `(chain, 1, b)`),
    and the first block as `explain` draws it: a table of 1,000 rows or fewer has the same posterior
    here and there. What all rows share is drawn once, with the first block. What is a mean over
    rows is summed over the blocks in their order. Sums are made by `threads` threads everywhere.

    It is written to `<path>.partial` and renamed at the end. A run that ended early, whatever ended
    it, keeps its chunks there; the same call goes on with them, once it has seen that they are as
    they were written. What was at `path` before stays until then.

    Memory holds a chunk at a time (on a cluster each worker one), whatever the number of rows.

    Args:
        result: the fit.
        rows: a Parquet file, or a folder of them, in the order of their names; a Dask dataframe; a
            frame, an array, a tensor, or a pair (x, y) of them; or an iterable of such chunks, of
            any sizes, read once.
        path: the store to write, such as "posterior.zarr".
        encoding: of a table's columns: the `encoding` of the data set, `encoding_` of an
            estimator, or `encoding.json` beside the explainer that `lexppl explain` wrote. Columns
            that it does not read may be in the files.
        with_y: whether y is read (the encoding's target column, or of pairs) and masks are drawn
            given y as well.
        draws: masks a row and chain. None for none (0), where the masks' distribution states its
            mean, which is then exact and all that is kept of them; else for 10.
        imputations, seed, entry_names, feature_names, proposals, held_out, dims, coords: of
            `explain`.
        keep_x: whether the rows themselves are written too, as `constant_data`.
        rows_per_chunk: rows worked on and stored at once, a multiple of 1,000; None for as many as
            take about 32 MiB, at most 100,000.
        client: a `dask.distributed.Client`, whose workers write to `path` and read the files, so
            that both must be on disks that they share.
        jobs: processes here; −1 for one a core.
        threads: of each chunk.
        overwrite: whether what is at `path` may be replaced, and chunks of another run thrown away.
        progress: show a bar, on a terminal or in a notebook.

    Returns:
        the path.

    Raises:
        ImportError: Zarr or Dask is not installed: `pip install "lexppl[dask]"`.
        FileExistsError: something is at `path`, and no `overwrite`.
        ValueError, TypeError: as `explain`; rows unlike those of the fit, files that lack a column,
            tables without an encoding, chunks of another run.
        OSError: the disk is full, or cannot be written; chunks that are done stay.

    Example:
        >>> import tempfile, torch
        >>> from lexppl.explanation import open_posterior
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(2500, 3, generator=torch.Generator().manual_seed(0))
        >>> small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(small, (x[:100], (x[:100, 0] > 0).long()), epochs=1, progress=False)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = explain_to_zarr(result, (chunk for chunk in x.split(700)),
        ...         f"{folder}/posterior.zarr", draws=2, progress=False)
        ...     posterior = open_posterior(path)
        ...     posterior["predictions"]["mask"].shape, posterior["sample_stats"].sizes["row"]
        ((1, 2, 2500, 3), 2500)
    """
    extra_library("zarr", EXTRA)
    check_workers(client, jobs, threads)
    if not isinstance(result, FitResult):
        raise TypeError(
            "result must be what fit() returned, or lexppl.load(), or the result_ of an estimator; "
            f"it is {type(result).__name__}"
        )
    if rows_per_chunk is not None and int_at_least("rows_per_chunk", rows_per_chunk) % BLOCK:
        raise ValueError(f"rows_per_chunk must be a multiple of {BLOCK}; it is {rows_per_chunk}")
    target = Path(path).expanduser().resolve()
    if target.exists() and not overwrite:
        raise FileExistsError(f"{str(target)!r} is there; give overwrite=True to replace it")
    if not target.parent.is_dir():
        raise ValueError(f"path: the folder {target.parent} is not there; create it first")
    how = Explaining(
        draws=draws,
        imputations=imputations,
        seed=seed,
        rows_per_chunk=BLOCK,
        entry_names=entry_names,
        feature_names=feature_names,
        proposals=proposals,
        held_out=held_out,
        dims=dims,
        coords=coords,
    )
    how.check()
    source = source_of(rows, encoding, with_y)
    task = _task(result, source, how, encoding, with_y, keep_x, rows_per_chunk)
    aside = target.with_name(target.name + PARTIAL)
    run = {
        "lexppl": version("lexppl"),
        "the explainer": fingerprint((result.models, result.guides)),
        "the rows": source.identity(),
        "the encoding": fingerprint(encoding),
        "the settings": fingerprint((vars(task.how), with_y, keep_x)),
        "rows_per_chunk": task.size,
    }
    chunks = _begun(aside, run, overwrite)
    store = ZarrPosterior(aside / STORE)
    total = _explained(task, source, chunks, store, (client, jobs, threads), progress)
    store.finish(_means(chunks, -(-total // task.size), total))
    replace_folder(store.path, target)
    shutil.rmtree(aside)
    return target


@dataclass(frozen=True)
class ChunkTask:
    """What is done with each chunk of rows, wherever that is.

    Args:
        result: the fit, without what only training needs.
        how: rows are explained.
        encoding: of tables, or None.
        with_y: whether y is read.
        keep_x: whether rows are written too.
        size: rows of a chunk, but for the last.
        first: x and y of the table's first rows.
    """

    result: FitResult
    how: Explaining
    encoding: TableEncoding | None
    with_y: bool
    keep_x: bool
    size: int
    first: tuple[Tensor, Tensor | None]

    def groups(self, number: int, piece: Piece) -> tuple[dict[str, xr.Dataset], Any, list[Sums]]:
        """Explain a chunk: its groups, what is said of all, its sums over rows.

        Args:
            number: of the chunk.
            piece: its rows.
        """
        x, y = encoded_piece(piece, self.encoding, self.with_y, _parameter(self.result))
        part = TablePart(number * (self.size // BLOCK), self.first)
        found = explained_rows(self.result, x, y, self.how, part=part)
        groups = dict(found.groups())
        if not self.keep_x:
            name = next(name for name in groups if name.endswith("constant_data"))
            constant = groups.pop(name).drop_vars("x")
            if constant.data_vars:
                groups[name] = constant
        return groups, found.attrs, found.sums

    def keep(
        self,
        number: int,
        groups: dict[str, xr.Dataset],
        sums: list[Sums],
        identity: str | None,
        store: ZarrPosterior,
        done: DoneChunks,
    ) -> None:
        """Write a chunk's groups, and then that they are there.

        Args:
            number: of the chunk.
            groups, sums: of :meth:`groups`.
            identity: of the rows, or None.
            store: of all.
            done: the chunks that are.
        """
        digest = store.write(groups, number * self.size)
        rows = groups["sample_stats"].sizes["row"]
        done.add(number, DoneChunk(rows, digest, identity, sums))


def _write(
    number: int,
    piece: Piece,
    identity: str | None,
    task: ChunkTask,
    store: ZarrPosterior,
    done: DoneChunks,
) -> None:
    """Explain a chunk and write it, wherever that is."""
    groups, _, sums = task.groups(number, piece)
    task.keep(number, groups, sums, identity, store, done)


def _task(
    result: FitResult,
    source: RowSource,
    how: Explaining,
    encoding: TableEncoding | None,
    with_y: bool,
    keep_x: bool,
    size: int | None,
) -> ChunkTask:
    """What is done with each chunk, once the first rows have been looked at."""
    first = encoded_piece(source.first(BLOCK), encoding, with_y, _parameter(result))
    x, y = first
    result.check(x, None)
    for module in (*result.models, *result.guides):
        if isinstance(module, nn.Module):
            keep_parameters_local(module)
    with evaluating(result.model), drawing(how.seed, x.device):
        sites = sites_of(result.model, x[:1], result.guides[0])
    draws = how.draws
    if draws is None:
        sampled = sampled_draws(result.guides[0])
        drawless = needs_draws(sites, y) is None
        draws = 0 if drawless else min(LEAST_DRAWS, sampled or LEAST_DRAWS)
    slim = replace(result, modules=[])
    how = replace(how, draws=draws)
    # What cannot be explained so is refused by the first two rows, before anything is written.
    explained_rows(slim, x[:2], None if y is None else y[:2], how, part=TablePart(0, first))
    size = _usual_size(sites, x, draws, len(result.models)) if size is None else size
    return ChunkTask(slim, how, encoding, with_y, keep_x, size, first)


def _usual_size(sites: ProgramSites, x: Tensor, draws: int, chains: int) -> int:
    """Rows of a chunk: whole blocks, of which masks, means and rows take so many bytes."""
    of_masks = sum(site.entries * (draws * site.dtype.itemsize + 8) for site in sites.masks)
    row = chains * (of_masks + 8 * draws) + x[0].numel() * x.element_size()
    return BLOCK * min(max(MOST_BYTES // (BLOCK * row), 1), MOST_BLOCKS)


def _begun(aside: Path, run: dict[str, Any], overwrite: bool) -> DoneChunks:
    """The chunks of this run that are done already, in its folder."""
    done = DoneChunks(aside)
    try:
        done.begin(run)
    except ValueError:
        if not overwrite:
            raise
        shutil.rmtree(aside)
        done.begin(run)
    if not (aside / STORE).is_dir():
        # Ended between the last two steps of a run: its chunks went with the store.
        done.forget()
    return done


def _explained(
    task: ChunkTask,
    source: RowSource,
    done: DoneChunks,
    store: ZarrPosterior,
    where: tuple[Any, int, int],
    progress: bool,
) -> int:
    """Explain what is not done yet; N."""
    client, jobs, threads = where
    counted = [0]

    def due(bar: Any) -> Iterator[tuple[int, Piece, str | None]]:
        for number, piece in enumerate(source.pieces(task.size)):
            start = number * task.size
            given = source.identity() is None
            identity = fingerprint(piece) if given else None
            rows = rows_in(piece) if given else min(task.size, (source.total or 0) - start)
            counted[0] = start + rows
            found = done.get(number)
            if found is not None and (found.rows, found.identity) != (rows, identity):
                raise ValueError(
                    f"rows {start} to {start + rows - 1} are not those that {str(done.folder)!r} "
                    "has explained: give the same rows to go on, or overwrite=True to begin anew"
                )
            if found is not None and store.digest(start, rows) == found.digest:
                bar.update()
                continue
            if number == 0:
                with fixed_threads(threads):
                    groups, attrs, sums = task.groups(number, piece)
                store.create(groups, attrs, source.total or rows, task.size)
                task.keep(number, groups, sums, identity, store, done)
                bar.update()
                continue
            store.grow(start + rows if source.total is None else source.total)
            yield number, piece, identity

    chunks = None if source.total is None else -(-source.total // task.size)
    with tqdm(total=chunks, disable=None if progress else True, unit="chunk") as bar:
        shared = (task, store, done)
        ended = outcomes(_write, due(bar), shared=shared, client=client, jobs=jobs, threads=threads)
        with closing(ended):
            for outcome in ended:
                if outcome.error is not None:
                    raise outcome.error
                bar.update()
    return counted[0]


def _means(done: DoneChunks, chunks: int, total: int) -> dict[tuple[str, str], np.ndarray]:
    """Means over all rows, of sums that are added block by block in their order."""
    means: dict[tuple[str, str], np.ndarray] = {}
    for number in range(chunks):
        found = done.get(number)
        for block in () if found is None else found.sums:
            for place, values in block.items():
                means[place] = means[place] + values if place in means else values
    return {place: values / total for place, values in means.items()}


def _parameter(result: FitResult) -> Tensor | None:
    """A parameter of the model, for its type and device."""
    model = result.model
    if not isinstance(model, nn.Module):
        return None
    return next((p for p in model.parameters() if p.is_floating_point()), None)
