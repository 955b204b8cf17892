"""One factory, many settings: a fit of each, here or on a cluster, and a table of what came."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from lexppl.atomic_output import output_file, write_through
from lexppl.fingerprint import fingerprint
from lexppl.inference import CollapseWarning, FitResult, fit
from lexppl.inference.contexts import seeded
from lexppl.saving import load, save
from lexppl.summary import Summarised, Summary, counted, some_of
from lexppl.sweeps.settings import Setting, check_names, parted, settings_of
from lexppl.workers import check_workers, outcomes

ROW = "row.json"
"""Written last: a fit without it is not there."""
EXPLAINER = "explainer"
NOT_SAVED = "not saved"


@dataclass(frozen=True)
class KeptFits:
    """A folder with a fit for each setting that has ended, by a hash of the setting.

    Args:
        folder: made with the first fit.
    """

    folder: Path

    def row(self, key: str) -> dict[str, Any] | None:
        """What a fit's row of the table says, or None where it has not ended.

        Args:
            key: the setting's hash.

        Raises:
            ValueError: a file that cannot be read, by its name.
        """
        path = self.folder / key / ROW
        if not path.is_file():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it holds no row")
        except ValueError as error:
            raise ValueError(
                f"{path} cannot be read ({error}); remove the folder {path.parent} to fit this "
                "setting again"
            ) from error
        return found

    def keep(self, key: str, row: Mapping[str, Any], result: FitResult) -> None:
        """Write a fit that has ended, and then its row.

        Args:
            key: the setting's hash.
            row: of the table.
            result: the fit.

        Raises:
            OSError: the folder cannot be written.
        """
        place = self.folder / key
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        why = None
        try:
            save(result, place / EXPLAINER)
        except TypeError as error:
            why = str(error)
        with output_file(place / ROW) as aside:
            write_through(aside, json.dumps({**row, NOT_SAVED: why}, indent=1).encode())

    def result(self, key: str, **how: Any) -> FitResult:
        """A fit that has ended.

        Args:
            key: the setting's hash.
            how: of :func:`lexppl.load`.

        Raises:
            ValueError: one that could not be saved, with the reason.
        """
        row = self.row(key) or {}
        if row.get(NOT_SAVED):
            raise ValueError(f"this fit is not in {self.folder}: {row[NOT_SAVED]}")
        return load(self.folder / key / EXPLAINER, **how)


Judge = Callable[[FitResult], Mapping[str, float]]
"""From a fit to figures by name."""

FIGURES = ("valid_loss", "best_epoch", "epochs_run", "collapse", "seconds", "error")
"""What the table says of every fit, beside its setting and the judge's figures."""

INTERRUPTED = "interrupted"


class SweepWarning(UserWarning):
    """Some settings of a sweep have failed."""


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Summarised):
    """What came of a sweep.

    Args:
        table: one row a setting, in their order: the setting's values by name; `valid_loss`, the
            held-out loss in nats a row of the fit (of the best of its replicates); `best_epoch` and
            `epochs_run`, counted from 1; `collapse`, its name or None; the judge's figures;
            `seconds`, the one column that differs from run to run; `error`, why a setting failed,
            or None.
        settings: in the same order.
        fits: those that ended, by the settings' places; None for those in `kept`.
        kept: the folder they were written to, or None.
        keys: the settings' hashes, by which the folder has them.
    """

    table: pd.DataFrame
    settings: Sequence[Setting]
    fits: Mapping[int, FitResult | None]
    kept: KeptFits | None
    keys: Sequence[str]

    def __len__(self) -> int:
        return len(self.settings)

    def summarised(self) -> Summary:
        """How many settings of what, the best of them, and what failed."""
        names = list(dict.fromkeys(name for one in self.settings for name in one.labels))
        losses = self.table["valid_loss"]
        best = None
        if losses.notna().any():
            place = int(np.nanargmin(losses.to_numpy(dtype=float)))
            best = f"{self.settings[place]}: {losses.iloc[place]:.3f} nats a row"
        collapsed = int(self.table["collapse"].notna().sum())
        lines = {
            "settings": f"{len(self):,}, of {some_of(names)}",
            "least held-out loss": best,
            "collapsed": f"{collapsed:,}" if collapsed else None,
            "failed": f"{len(self.failed):,}" if len(self.failed) else None,
            "kept in": None if self.kept is None else str(self.kept.folder),
        }
        return Summary("Sweep", lines)

    @property
    def failed(self) -> pd.DataFrame:
        """The rows of the settings that have failed."""
        return self.table[self.table["error"].notna()]

    def result(self, place: int, **how: Any) -> FitResult:
        """The fit of a setting, read from the folder where there is one.

        Args:
            place: of the setting, from 0: the row's number in the table.
            how: of :func:`lexppl.load`, for a program of your own.

        Raises:
            ValueError: a setting that is not there, has failed, or could not be saved.
        """
        if not 0 <= place < len(self):
            raise ValueError(f"place must be from 0 to {len(self) - 1}; it is {place}")
        if place not in self.fits:
            error = self.table["error"].iloc[place]
            raise ValueError(f"there is no fit of {self.settings[place]}: {error}")
        held = self.fits[place]
        if held is None and self.kept is not None:
            return self.kept.result(self.keys[place], **how)
        if held is None:
            raise ValueError(f"the fit of {self.settings[place]} was not kept")
        return held


def sweep(
    build: Callable[..., Any],
    train: Any,
    *,
    settings: Mapping[str, Any] | Iterable[Mapping[str, Any]],
    judge: Judge | None = None,
    folder: str | Path | None = None,
    client: Any = None,
    jobs: int = 1,
    threads: int = 1,
    progress: bool = True,
    **common: Any,
) -> Sweep:
    """Fit one factory with many settings, and put what came of each into a table.

    The fits run one after the other, in `jobs` processes (joblib) or on the workers of a Dask
    client, and are the same bits wherever they run on machines of one kind: what is random in a fit
    comes from its own `seed` (0 where none is given), its sums are made by `threads` threads, and
    fits in threads of one worker take turns. A setting that fails has its error in its row, and
    stops no other.

    With a `folder` each fit is written as it ends (:func:`lexppl.save`), under a hash of its
    setting, the factory, the rows and the judge. The same call later takes from there what has
    ended and fits what has not, or has failed. The hash knows a function by its code and what it
    closes over, not by the global names that it reads: after a change in those give another folder.

    Args:
        build: a factory: from settings to what `fit` takes, a system or a program. It is called
            with the settings that are arguments of its own, such as `partial(lex, 11, classes=2)`
            with k or penalty, within the setting's seed; the other settings are those of `fit`.
        train: rows, as `fit` takes them.
        settings: values by name, of which all combinations are tried, as in `{"penalty": (.01,
            .02), "seed": range(4)}`; or a list of dicts. What has no short name gets one by a dict
            in the place of the list: `{"imputer": {"zero": ConstantImputer(), "noise":
            GaussianImputer()}}`.
        judge: figures of a fit for the table, by name, computed where the fit was; it must draw
            from a seed of its own, as the library's functions do.
        folder: where fits are kept, and found again; None to hold them in memory.
        client: a `dask.distributed.Client`. Its workers need the library and get the rows; the
            folder is written here, and need not be shared.
        jobs: processes here; −1 for one a core.
        threads: of each fit. More than one is slower for networks of tables.
        progress: show a bar, on a terminal or in a notebook.
        common: what all fits have, of the factory or of `fit`, such as `epochs=50` or `valid=…`.

    Returns:
        Sweep: its `table`, and each fit by `result(place)`.

    Raises:
        ValueError, TypeError: unknown names, a setting twice, arguments that the factory lacks, a
            client that is none, with a folder what cannot be identified; before any work.
        OSError: the folder cannot be written; what it had stays.

    Warns:
        SweepWarning: settings that failed, and the first one's error.

    Example:
        >>> import torch
        >>> from functools import partial
        >>> from lexppl.systems import lex
        >>> x = torch.randn(120, 3, generator=torch.Generator().manual_seed(0))
        >>> small = partial(lex, 3, classes=2, hidden=(4,), predictor_hidden=(4,))
        >>> found = sweep(small, (x, (x[:, 0] > 0).long()), settings={"k": [1, 2], "seed": [0, 1]},
        ...     epochs=2, progress=False)
        >>> found.table[["k", "seed", "epochs_run"]].values.tolist()
        [[1, 0, 2], [1, 1, 2], [2, 0, 2], [2, 1, 2]]
        >>> type(found.result(3)).__name__
        'FitResult'
    """
    check_workers(client, jobs, threads)
    listed = settings_of(settings)
    check_names(build, listed, common)
    _check_labels(listed)
    kept, keys = None, [""] * len(listed)
    if folder is not None:
        kept = KeptFits(Path(folder).expanduser())
        rows = fingerprint((train, version("lexppl")))
        keys = [fingerprint((build, dict(o.values), common, judge, rows)) for o in listed]
    rows_of: dict[int, dict[str, Any]] = {}
    fits: dict[int, FitResult | None] = {}
    for place, key in enumerate(keys):
        found = None if kept is None else kept.row(key)
        if found is not None:
            found.pop(NOT_SAVED, None)
            rows_of[place], fits[place] = found, None
    due = [place for place in range(len(listed)) if place not in rows_of]
    ended = outcomes(
        _fitted,
        [(listed[place],) for place in due],
        shared=(build, train, dict(common), judge),
        client=client,
        jobs=jobs,
        threads=threads,
    )
    with tqdm(total=len(due), disable=None if progress else True, unit="fit") as bar:
        for outcome in ended:
            place = due[outcome.number]
            if outcome.error is not None:
                rows_of[place] = {"error": f"{type(outcome.error).__name__}: {outcome.error}"}
            else:
                rows_of[place], result = outcome.value
                if rows_of[place]["error"] is None:
                    fits[place] = result if kept is None else None
                    if kept is not None:
                        kept.keep(keys[place], rows_of[place], result)
            bar.update()
            if rows_of[place].get("error") == INTERRUPTED:
                break
    unrun = {"error": "not run: the sweep was interrupted"}
    table = _table(listed, [rows_of.get(place, unrun) for place in range(len(listed))])
    found_all = Sweep(table, listed, fits, kept, keys)
    _report(found_all)
    return found_all


def _fitted(
    setting: Setting,
    build: Callable[..., Any],
    train: Any,
    common: Mapping[str, Any],
    judge: Judge | None,
) -> tuple[dict[str, Any], FitResult]:
    """Fit one setting: its row of the table, and the fit without what only training needs."""
    of_build, of_fit = parted(build, setting, common)
    with seeded(of_fit.get("seed", 0)):
        model = build(**of_build)
    with warnings.catch_warnings():
        # The table has a column of them, and a path's ends collapse as they should.
        warnings.simplefilter("ignore", CollapseWarning)
        result = fit(model, train, progress=False, **of_fit)
    best = result.best
    interrupted = result.interrupted and not of_fit.get("callbacks")
    row: dict[str, Any] = {
        "valid_loss": _plain("valid_loss", result.best_valid[best]),
        "best_epoch": int(result.best_epoch[best]) + 1,
        "epochs_run": len(result.history),
        "collapse": result.collapse[best],
        "seconds": float(np.sum(result.history.seconds)),
        "error": INTERRUPTED if interrupted else None,
    }
    if judge is not None and not interrupted:
        row |= _figures(judge(result))
    return row, replace(result, modules=[])


def _figures(given: Any) -> dict[str, float | None]:
    if not isinstance(given, Mapping):
        raise TypeError(f"judge must give figures by name, a dict; it gave {given!r}")
    taken = [name for name in given if name in FIGURES]
    if taken:
        raise ValueError(f"judge gives {some_of(taken)}, which the table has of its own; rename it")
    return {str(name): _plain(str(name), value) for name, value in given.items()}


def _plain(name: str, value: Any) -> float | None:
    """A number as JSON has it, which knows no NaN."""
    if getattr(value, "shape", None) == ():
        value = value.item()
    if not isinstance(value, Real):
        raise TypeError(f"judge must give numbers; {name} is {value!r}")
    number = float(value)
    return None if np.isnan(number) else number


def _check_labels(settings: Sequence[Setting]) -> None:
    taken = {name for one in settings for name in one.labels if name in FIGURES}
    if taken:
        raise ValueError(
            f"a setting is called {some_of(sorted(taken))}, as a column of the table is; rename it"
        )


def _table(settings: Sequence[Setting], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The settings' columns, the figures, the judge's, and last what is of the run."""
    names = list(dict.fromkeys(name for one in settings for name in one.labels))
    judged = list(dict.fromkeys(n for row in rows for n in row if n not in FIGURES))
    order = [*FIGURES[:4], *judged, *FIGURES[4:]]
    columns: dict[str, Any] = {name: [one.labels.get(name) for one in settings] for name in names}
    for name in order:
        cells = [row.get(name) for row in rows]
        if name in ("collapse", "error"):
            columns[name] = pd.Series(cells, dtype=object)
        elif name in ("best_epoch", "epochs_run"):
            columns[name] = pd.array(cells, dtype="Int64")
        else:
            columns[name] = pd.Series(cells, dtype=float)
    return pd.DataFrame(columns)


def _report(found: Sweep) -> None:
    failed = found.failed
    if len(failed) == 0:
        return
    place = int(failed.index[0])
    warnings.warn(
        f"{len(failed)} of {counted(len(found), 'setting')} failed; the first is "
        f"{found.settings[place]}: {failed['error'].iloc[0]}. Each one's error is in the table's "
        "column 'error'",
        SweepWarning,
        stacklevel=3,
    )
