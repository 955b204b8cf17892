"""Explain rows chunk by chunk into a Zarr store, in one process or on a cluster."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from torch import Tensor
from tqdm.auto import tqdm

from lexppl import __version__
from lexppl.argument_checks import int_at_least
from lexppl.explanation.explained_rows import explained_rows
from lexppl.explanation.given_program import sampled_draws
from lexppl.explanation.mask_sampler import BLOCK, LEAST_DRAWS, ExplainOptions, needs_draws
from lexppl.explanation.posterior_files import EXTRA, RUN, ZarrPosterior
from lexppl.explanation.program_sites import ProgramSites, sites_of
from lexppl.explanation.row_source import Piece, RowSource, encoded_piece, rows_in
from lexppl.extras import extra_library
from lexppl.fingerprint import fingerprint
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult
from lexppl.sealed_files import clear, held, named, put_folder, refused_by_name, remove, write_whole
from lexppl.threads import evaluating
from lexppl.workers import check_workers, fixed_threads, outcomes

if TYPE_CHECKING:
    from lexppl.data import TableEncoding


MOST_BYTES = 2**25  # What a chunk's masks, means and rows take at most, by default
MOST_BLOCKS = 100  # Of a chunk, by default
PARTIAL, STORE, PIECES = ".partial", "posterior.zarr", "the chunks"
# What is kept of a chunk that is done, beside its sums over rows: their number, and a hash of
# rows that had to be read, and the checksums of its files.
ROWS, IDENTITY, FILES = "rows", "identity", "files"


def explain_to_zarr(
    result: FitResult,
    rows: Any,
    path: str | Path,
    *,
    encoding: TableEncoding | None = None,
    with_y: bool = False,
    keep_x: bool = True,
    rows_per_chunk: int | None = None,
    client: Any = None,
    jobs: int = 1,
    threads: int = 1,
    overwrite: bool = False,
    progress: bool = True,
    **options: Any,
) -> Path:
    """Explain rows that do not fit into memory: :func:`lexppl.explain`, chunk by chunk.

    The store has the groups and variables of `explain`, rows numbered from 0; open it lazily with
    :func:`open_posterior` or `xarray.open_datatree(path, engine="zarr")`.

    The numbers depend on the row's number and the seed alone, not on chunks, processes or workers:
    block b = ⌊row / 1000⌋ is drawn from `numpy.random.SeedSequence(seed, spawn_key=(chain, 0, b))`
    (of masks given y `(chain, 1, b)`), and the first block as `explain` draws it. What all rows
    share is drawn once, with the first block.

    It is written to `<path>.partial` and renamed at the end. A run that ended early keeps its
    chunks there, and the same call goes on with them; after the end it returns the path at once.
    Memory holds a chunk at a time.

    Args:
        result: the fit.
        rows: a Parquet file, or a folder of them, in the order of their names; a Dask dataframe; a
            frame, an array, a tensor, or a pair (x, y) of them; or an iterable of such chunks, of
            any sizes, read once.
        path: the store to write, such as "posterior.zarr".
        encoding: of a table's columns: the `encoding` of the data set, `encoding_` of an
            estimator, or `encoding.json` beside the explainer that `lexppl explain` wrote.
        with_y: whether y is read (the encoding's target column, or of pairs) and masks are drawn
            given y as well.
        keep_x: whether the rows themselves are written too, as `constant_data`.
        rows_per_chunk: a multiple of 1,000; None for as many as take about 32 MiB, at most 100,000.
        client: a `dask.distributed.Client`, whose workers share the disks of `path` and the files.
        jobs: processes here; −1 for one a core.
        threads: of each chunk.
        overwrite: whether what is at `path` may be replaced, and chunks of another run thrown away.
        progress: show a bar, on a terminal or in a notebook.
        options: `imputations`, `seed`, `entry_names`, `proposals`, `held_out`, `dims` and `coords`,
            but of rows, of `explain`; and `draws`, masks a row and chain: if None 0 where the
            masks' distribution states its mean, else 10.

    Returns:
        the path.

    Raises:
        ImportError: Zarr or Dask is not installed: `pip install "lexppl[dask]"`.
        FileExistsError: something else than this call's store is at `path`, and no `overwrite`.
        ValueError, TypeError: as `explain`; rows unlike those of the fit, files that lack a column,
            tables without an encoding, chunks of another run.
        OSError: the disk is full, or cannot be written; chunks that are done stay.
        RuntimeError: a process of `jobs` was killed; chunks that are done stay.

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
        ...     open_posterior(path)["predictions"]["mask"].shape
        (1, 2, 2500, 3)
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
    aside = target.with_name(target.name + PARTIAL)
    is_there = FileExistsError(f"{str(target)!r} is there; give overwrite=True to replace it")

    def refuse_present() -> None:
        if target.exists() and not overwrite:
            with suppress(OSError):
                aside.rmdir()  # Empty, where another process has ended since.
            raise is_there

    clear(target)
    if target.exists() and not (overwrite or (target / RUN).is_file()):
        raise is_there
    if not target.parent.is_dir():
        raise ValueError(f"path: the folder {target.parent} is not there; create it first")
    how = ExplainOptions(**options, rows_per_chunk=BLOCK)
    how.check()
    if how.names_along("row") is not None:
        raise ValueError("the rows of a store are numbered from 0: leave coords['row'] out")
    source = RowSource(rows, encoding, with_y)
    first = encoded_piece(source.first(BLOCK), encoding, with_y, result)
    size = rows_per_chunk or 0
    task = _settled(ChunkTask(result, how, encoding, with_y, keep_x, size, first, aside))
    run: dict[str, Any] = {
        "lexppl": __version__,
        "the explainer": fingerprint((result.models, result.guides)),
        "the rows": source.identity(),
        "the encoding": fingerprint(encoding),
        "the settings": fingerprint((vars(task.how), with_y, keep_x)),
        "rows_per_chunk": task.size,
    }
    # A folder of the run's own: a process of another one may still write there when that is over.
    task = replace(task, aside=aside / fingerprint(run))
    if target.exists() and not overwrite:
        with refused_by_name(target / RUN):
            finished = json.loads((target / RUN).read_text(encoding="utf-8"))
        if finished == {**run, PIECES: [source.identity_of(p) for p in source.pieces(task.size)]}:
            return target
        raise is_there
    aside.mkdir(exist_ok=True)
    with named(target), held(aside):
        refuse_present()
        _begin(aside, run, overwrite)
        means, files, run[PIECES] = _explained(task, source, (client, jobs, threads), progress)
        task.store.finish(means, files, run)
        put_folder(task.store.path, target, refuse_present)
        shutil.rmtree(aside, ignore_errors=True)
    return target


@dataclass(frozen=True)
class ChunkTask:
    """What is done with each chunk of rows, wherever that is: `first` is x and y of the table's
    first rows, `aside` the folder of the run."""

    result: FitResult
    how: ExplainOptions
    encoding: TableEncoding | None
    with_y: bool
    keep_x: bool
    size: int
    first: tuple[Tensor, Tensor | None]
    aside: Path

    @property
    def store(self) -> ZarrPosterior:
        """Store that all chunks are written to."""
        return ZarrPosterior(self.aside / STORE)

    def groups(
        self, number: int, piece: Piece
    ) -> tuple[dict[str, xr.Dataset], dict[str, Any], dict[str, np.ndarray]]:
        """Explain a chunk: its groups, the attributes of all, and its rows and sums over them."""
        x, y = encoded_piece(piece, self.encoding, self.with_y, self.result)
        part = (number * (self.size // BLOCK), self.first)
        arrays = explained_rows(self.result, x, y, self.how, part=part)
        groups = arrays.groups()
        sums = {f"{group}/{name}": groups[group][name].values for group, name in arrays.over_rows}
        sums[ROWS] = np.array(len(x))
        if not self.keep_x:
            name = next(name for name in groups if name.endswith("constant_data"))
            constant = groups.pop(name).drop_vars("x")
            if constant.data_vars:
                groups[name] = constant
        return groups, arrays.attrs, sums

    def write(
        self, number: int, piece: Piece, identity: str | None, total: int | None = None
    ) -> None:
        """Explain and write a chunk, then note that; the first, of a table of `total` rows, makes
        the store."""
        groups, attrs, sums = self.groups(number, piece)
        if total is not None:
            self.store.create(groups, attrs, total, self.size)
        files = self.store.write(groups, number * self.size)
        content = io.BytesIO()
        held: dict[str, Any] = {**sums, IDENTITY: np.array(identity or "")}
        held[FILES] = np.array(json.dumps(files))
        np.savez(content, **held)
        write_whole(self.done(number), content.getbuffer())

    def done(self, number: int) -> Path:
        """Path of the file that a finished chunk has."""
        return self.aside / f"{number:08d}.npz"

    def mark(self, number: int) -> dict[str, np.ndarray]:
        """What that file holds."""
        path = self.done(number)
        # numpy leaves a file open that it opens itself and cannot read.
        with refused_by_name(path), path.open("rb") as file, np.load(file) as held:
            return dict(held)


def _write(number: int, piece: Piece, identity: str | None, task: ChunkTask) -> None:
    task.write(number, piece, identity)


def _settled(task: ChunkTask) -> ChunkTask:
    """The task with the number of draws and of rows of a chunk that its first rows ask for."""
    result, how, (x, y) = task.result, task.how, task.first
    result.check(x, None)
    keep_parameters_local(*result.models, *result.guides)
    with evaluating(result.model), drawing(how.seed, x.device):
        sites = sites_of(result.model, x[:1], result.guides[0])
    draws = how.draws
    if draws is None:
        sampled = sampled_draws(result.guides[0])
        drawless = needs_draws(sites, y) is None
        draws = 0 if drawless else min(LEAST_DRAWS, sampled or LEAST_DRAWS)
    size = task.size or _usual_size(sites, x, draws, len(result.models))
    task = replace(
        task, result=replace(result, modules=[]), how=replace(how, draws=draws), size=size
    )
    # What cannot be explained so is refused by the first two rows, before anything is written.
    few = x[:2], None if y is None else y[:2]
    explained_rows(task.result, *few, task.how, part=(0, task.first))
    return task


def _usual_size(sites: ProgramSites, x: Tensor, draws: int, chains: int) -> int:
    """Rows of a chunk: whole blocks, of which masks, means and rows take so many bytes."""
    of_masks = sum(site.entries * (draws * site.dtype.itemsize + 8) for site in sites.masks)
    row = chains * (of_masks + 8 * draws) + x[0].numel() * x.element_size()
    return BLOCK * min(max(MOST_BYTES // (BLOCK * row), 1), MOST_BLOCKS)


def _begin(aside: Path, run: dict[str, Any], overwrite: bool) -> None:
    """Make the folder of a run, or go on in it if it is this run's."""
    note = aside / RUN
    with refused_by_name(note):
        begun = json.loads(note.read_text(encoding="utf-8")) if note.is_file() else None
        other = [] if begun is None else [name for name in run if begun.get(name) != run[name]]
    if other and not overwrite:
        raise ValueError(
            f"{str(aside)!r} has chunks of another run, which differs in {', '.join(other)}: make "
            "the same call to go on with it, give another path, or overwrite=True to begin anew"
        )
    if begun is None or other or not (aside / fingerprint(run) / STORE).is_dir():
        # Chunks without a note may be of another run.
        for path in aside.iterdir():
            remove(path)
        write_whole(note, json.dumps(run, indent=1).encode())


def _explained(
    task: ChunkTask, source: RowSource, where: tuple[Any, int, int], progress: bool
) -> tuple[dict[str, np.ndarray], dict[str, str], list[str | None]]:
    """Explain what is not done yet; the means over all rows, the checksums of files, and hashes of
    the chunks' rows, None of rows in files."""
    client, jobs, threads = where
    count = 0

    def due(bar: Any) -> Iterator[tuple[int, Piece, str | None]]:
        nonlocal count
        for number, piece in enumerate(source.pieces(task.size)):
            start, count = number * task.size, number + 1
            identity = source.identity_of(piece)
            rows = rows_in(piece) if source.table is None else piece.stop - start
            if task.done(number).is_file():
                held = task.mark(number)
                known = (int(held[ROWS]), str(held[IDENTITY]) or None)
                if known != (rows, identity):
                    raise ValueError(
                        f"rows {start} to {start + rows - 1} are not those that {str(task.aside)!r}"
                        " has explained: give the same rows to go on, or overwrite=True to begin "
                        "anew"
                    )
                bar.update()
            elif number == 0:
                with fixed_threads(threads):
                    task.write(number, piece, identity, source.total or rows)
                bar.update()
            else:
                task.store.grow(source.total or start + rows)
                yield number, piece, identity

    chunks = None if source.total is None else -(-source.total // task.size)
    with tqdm(total=chunks, disable=None if progress else True, unit="chunk") as bar:
        ended = outcomes(
            _write, due(bar), shared=(task,), client=client, jobs=jobs, threads=threads
        )
        with closing(ended):
            for outcome in ended:
                if outcome.error is not None:
                    raise outcome.error
                bar.update()
    sums: dict[str, np.ndarray] = {}
    files: dict[str, str] = {}
    pieces: list[str | None] = []
    for number in range(count):
        held = task.mark(number)
        files |= json.loads(str(held[FILES]))
        pieces.append(str(held[IDENTITY]) or None)
        for name in held.keys() - {IDENTITY, FILES}:
            sums[name] = held[name] + sums.get(name, 0)
    total = int(sums.pop(ROWS))
    return {name: values / total for name, values in sums.items()}, files, pieces
