"""Many fits of one kind: over seeds, penalties, sizes, imputers, or any other setting."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import nn
from tqdm.auto import tqdm

from lexppl import __version__
from lexppl.fingerprint import fingerprint
from lexppl.inference import CollapseWarning, FitResult, fit
from lexppl.inference.contexts import seeded
from lexppl.saving import load, save
from lexppl.sealed_files import refused_by_name, write_whole
from lexppl.summary import Summarised, Summary, counted, some_of
from lexppl.workers import check_workers, outcomes

__all__ = ["sweep"]

# Of a kept fit; the row is written last: a fit without it has not ended.
ROW, EXPLAINER = "row.json", "explainer"
# Columns of the table for every fit, beside its setting and the judge's figures.
FIGURES = ("valid_loss", "best_epoch", "epochs_run", "collapse", "seconds", "error")
NO_SETTINGS = ("model", "train", "progress", "checkpoint", "distributed")
FIT = tuple(name for name in inspect.signature(fit).parameters if name not in NO_SETTINGS)
INTERRUPTED = "interrupted"
Judge = Callable[[FitResult], Mapping[str, float]]  # From a fit to figures by name


class SweepWarning(UserWarning):
    """Some settings of a sweep have failed."""


@dataclass(frozen=True, eq=False)
class _Setting:
    """One setting: its values by name, and their labels in the table."""

    labels: dict[str, Any]
    values: dict[str, Any]

    def __str__(self) -> str:
        return ", ".join(f"{name}={label}" for name, label in self.labels.items())


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Summarised):
    """The fits of a sweep.

    Args:
        table: one row a setting: the setting, `valid_loss`, `best_epoch`, `epochs_run`, `collapse`,
            the judge's figures, `seconds`, and `error` where it has failed.
        settings: in the order of the rows.
        fits: by row, the fits that have ended; None for one that is kept in the folder.
        folders: of each setting, where fits are kept.
    """

    table: pd.DataFrame
    settings: Sequence[_Setting]
    fits: Mapping[int, FitResult | None]
    folders: Sequence[Path] | None

    def __len__(self) -> int:
        return len(self.settings)

    def summarised(self) -> Summary:
        """The number of settings, the best of them, and what failed."""
        losses, best = self.table["valid_loss"], None
        if losses.notna().any():
            place = int(np.nanargmin(losses.to_numpy(dtype=float)))
            best = f"{self.settings[place]}: {losses.iloc[place]:.3f} nats a row"
        collapsed = int(self.table["collapse"].notna().sum())
        names = dict.fromkeys(name for one in self.settings for name in one.labels)
        lines = {
            "settings": f"{len(self):,}, of {some_of(names)}",
            "least held-out loss": best,
            "collapsed": f"{collapsed:,}" if collapsed else None,
            "failed": f"{len(self.failed):,}" if len(self.failed) else None,
            "kept in": None if self.folders is None else str(self.folders[0].parent),
        }
        return Summary("Sweep", lines)

    @property
    def failed(self) -> pd.DataFrame:
        """The rows of the settings that have failed."""
        return self.table[self.table["error"].notna()]

    def result(self, place: int, **how: Any) -> FitResult:
        """The fit of row `place` of the table, from 0; `how` of :func:`lexppl.load`, for a program
        of your own.

        Raises:
            ValueError: a setting that has failed.
        """
        if place not in self.fits:
            error = self.table["error"].iloc[place]
            raise ValueError(f"there is no fit of {self.settings[place]}: {error}")
        held = self.fits[place]
        if held is None and self.folders is not None:
            return load(self.folders[place] / EXPLAINER, **how)
        assert held is not None
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
    """Fit one factory with many settings, and put the results into a table.

    The fits run one after the other, in `jobs` processes (joblib) or on the workers of a Dask
    client, and are the same bits wherever they run on machines of one kind. A setting that fails
    has its error in its row, and stops no other.

    With a `folder` each fit is written as it ends (:func:`lexppl.save`), under a hash of its
    setting, the factory, the rows and the judge, and the same call later fits only what has not
    ended, or has failed. The hash knows a function by its code and what it closes over, not by the
    global names that it reads: after a change in those give another folder.

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
        client: a `dask.distributed.Client`. Its workers need the library and get the rows.
        jobs: processes here; −1 for one a core.
        threads: of each fit. More than one is slower for networks of tables.
        progress: show a bar, on a terminal or in a notebook.
        common: what all fits have, of the factory or of `fit`, such as `epochs=50` or `valid=…`.

    Raises:
        ValueError, TypeError: unknown names, a setting twice, arguments that the factory lacks, a
            client that is none, with a folder what cannot be identified; before any work.
        OSError: the folder cannot be written; what it had stays.
        RuntimeError: a process of `jobs` was killed; the folder has the fits that ended.

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
    """
    check_workers(client, jobs, threads)
    listed = _listed(settings)
    _check(build, listed, common)
    folders: list[Path] | None = None
    if folder is not None:
        rows = fingerprint((train, __version__))
        keys = [fingerprint((build, one.values, common, judge, rows)) for one in listed]
        folders = [Path(folder).expanduser() / key for key in keys]
    rows_of: dict[int, dict[str, Any]] = {}
    for place, own in enumerate(folders or ()):
        if (own / ROW).is_file():
            with refused_by_name(own / ROW):
                rows_of[place] = dict(json.loads((own / ROW).read_text(encoding="utf-8")))
    fits: dict[int, FitResult | None] = dict.fromkeys(rows_of)
    due = [place for place in range(len(listed)) if place not in rows_of]
    tasks, shared = [(listed[place],) for place in due], (build, train, dict(common), judge)
    ended = outcomes(_fitted, tasks, shared=shared, client=client, jobs=jobs, threads=threads)
    with tqdm(total=len(due), disable=None if progress else True, unit="fit") as bar:
        for outcome in ended:
            place, error = due[outcome.number], outcome.error
            if error is not None:
                rows_of[place] = {"error": f"{type(error).__name__}: {error}"}
            else:
                rows_of[place], result = outcome.value
                if rows_of[place]["error"] is None:
                    fits[place] = result
                    if folders is not None and _written(folders[place], *outcome.value):
                        fits[place] = None
            bar.update()
            if rows_of[place]["error"] == INTERRUPTED:
                break
    unrun = {"error": "not run: the sweep was interrupted"}
    table = _table(listed, [rows_of.get(place, unrun) for place in range(len(listed))])
    found = Sweep(table, listed, fits, folders)
    if len(found.failed):
        first, error = listed[found.failed.index[0]], found.failed["error"].iloc[0]
        message = f"{len(found.failed)} of {counted(len(found), 'setting')} failed; the first is "
        message += f"{first}: {error}. Each one's error is in the table's column 'error'"
        warnings.warn(message, SweepWarning, stacklevel=2)
    return found


def _listed(settings: Any) -> list[_Setting]:
    """The settings of a grid, the last name's values changing fastest, or of a list."""
    if isinstance(settings, Mapping):
        axes = []
        for name, values in settings.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise TypeError(
                    f"settings[{name!r}] must be a list of values to try; it is {values!r}. One "
                    f"value for all fits is an argument beside: sweep(…, {name}={values!r})"
                )
            named = values if isinstance(values, Mapping) else None
            pairs = named.items() if named is not None else ((_label(v), v) for v in values)
            axes.append([(name, label, value) for label, value in pairs])
        every = [list(combined) for combined in product(*axes)] if axes else []
    elif isinstance(settings, list | tuple) and all(isinstance(one, Mapping) for one in settings):
        every = [[(n, _label(value), value) for n, value in one.items()] for one in settings]
    else:
        raise TypeError(
            "settings must be a dict of values by name, such as {'seed': range(4)}, or a list of "
            f"dicts; it is {settings!r}"
        )
    found = [_Setting({n: label for n, label, _ in o}, {n: v for n, _, v in o}) for o in every]
    if not found:
        raise ValueError("settings must be at least one; there is none")
    texts = list(map(str, found))
    if repeated := [text for text in texts if texts.count(text) > 1]:
        raise ValueError(
            f"settings must differ; {repeated[0]} stands there twice. Values that read alike can "
            "be given names, as in {'imputer': {'first': …, 'second': …}}"
        )
    return found


def _label(value: Any) -> bool | int | float | str | None:
    """A value in the table: numbers, words and None as they are, a module by its class."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return type(value).__name__ if isinstance(value, nn.Module) else str(value)


def _check(
    build: Callable[..., Any], settings: Sequence[_Setting], common: Mapping[str, Any]
) -> None:
    """Refuse settings that neither the factory nor `fit` takes, before any work."""
    if not callable(build) or isinstance(build, nn.Module):
        raise TypeError(
            "build must be a function that takes settings and gives what fit takes, such as "
            f"functools.partial(lexppl.systems.lex, 11, classes=2); it is a {type(build).__name__}"
        )
    name = getattr(build, "__name__", None) or getattr(build, "func", type(build)).__name__
    taken = inspect.signature(build).parameters
    own = [one for one in NO_SETTINGS if one not in taken]
    for one in settings:
        if reserved := [n for n in (*one.values, *common) if n in own or n in FIGURES]:
            raise ValueError(f"{reserved[0]} can be no setting of a sweep, which has its own")
        if twice := [n for n in one.values if n in common]:
            raise ValueError(f"{twice[0]} is a setting, and given for all fits too; give it once")
        try:
            inspect.signature(build).bind(**_parted(build, one, common)[0])
        except TypeError as error:
            raise ValueError(
                f"{name} cannot be called with {one or 'these settings'}: {error}; settings are "
                f"its arguments and those of fit ({some_of(FIT, 99)})"
            ) from None


def _parted(
    build: Callable[..., Any], setting: _Setting, common: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A setting's arguments of the factory and of `fit`; a name of both is the factory's."""
    taken = inspect.signature(build).parameters
    every = {**common, **setting.values}
    of_fit = {n: value for n, value in every.items() if n in FIT and n not in taken}
    return {n: value for n, value in every.items() if n not in of_fit}, of_fit


def _fitted(
    setting: _Setting,
    build: Callable[..., Any],
    train: Any,
    common: Mapping[str, Any],
    judge: Judge | None,
) -> tuple[dict[str, Any], FitResult]:
    """Fit one setting: its row of the table, and the fit without what only training needs."""
    of_build, of_fit = _parted(build, setting, common)
    with seeded(of_fit.get("seed", 0)):
        model = build(**of_build)
    with warnings.catch_warnings():
        # The table has a column of them, and a path's ends collapse as they should.
        warnings.simplefilter("ignore", CollapseWarning)
        result = fit(model, train, progress=False, **of_fit)
    best = result.best
    interrupted = result.interrupted and not of_fit.get("callbacks")
    row: dict[str, Any] = {
        "valid_loss": float(result.best_valid[best]),
        "best_epoch": int(result.best_epoch[best]) + 1,
        "epochs_run": len(result.history),
        "collapse": result.collapse[best],
        "seconds": float(np.sum(result.history.seconds)),
        "error": INTERRUPTED if interrupted else None,
    }
    if judge is not None and not interrupted:
        for name, value in judge(result).items():
            if name in FIGURES or not isinstance(value, int | float | np.number):
                raise TypeError(
                    f"judge must give numbers by names other than {FIGURES}; {name} is {value!r}"
                )
            row[name] = float(value)
    return row, replace(result, modules=[])


def _written(folder: Path, row: Mapping[str, Any], result: FitResult) -> bool:
    """Whether a fit that has ended could be saved; writes it, and then its row of the table."""
    if (folder / ROW).is_file():  # By another process with the same call
        return True
    try:
        save(result, folder / EXPLAINER)
    except TypeError as error:
        warnings.warn(f"a fit is held in memory alone: {error}", SweepWarning, stacklevel=3)
        return False
    write_whole(folder / ROW, json.dumps(row, indent=1).encode())
    return True


def _table(settings: Sequence[_Setting], rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The settings' columns, the figures, the judge's, and last those of the run."""
    names = dict.fromkeys(name for one in settings for name in one.labels)
    judged = dict.fromkeys(n for row in rows for n in row if n not in FIGURES)
    lines = [{**one.labels, **row} for one, row in zip(settings, rows, strict=True)]
    columns = [*names, *FIGURES[:4], *judged, *FIGURES[4:]]
    types = {name: "Int64" for name in ("best_epoch", "epochs_run")}
    types |= {name: "float" for name in ("valid_loss", "seconds", *judged)}
    return pd.DataFrame(lines, columns=columns).astype(types)
