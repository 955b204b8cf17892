"""`lexppl explain` of data of any kind: read, fit, save, and write the report."""

from __future__ import annotations

import argparse
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from lexppl.choices.files import MODEL, OUTPUTS
from lexppl.cli.options.plan_options import device_of
from lexppl.cli.printed import print_report
from lexppl.cli.terminal import (
    INTERRUPTED,
    deferred_interrupts,
    progress_of,
    short_warnings,
    show_progress,
    warn,
)
from lexppl.inference import Checkpoints
from lexppl.report.data import ReportOptions
from lexppl.report.sections import SectionedReport, Sections
from lexppl.sealed_files import is_full_disk, output_folder


class ExplainRun(ABC):
    """One run of `lexppl explain` on data of one kind."""

    def __init__(self, typed: argparse.Namespace, command: Sequence[str]) -> None:
        self.typed, self.progress = typed, progress_of(typed)
        named = [option.name for option in fields(ReportOptions) if hasattr(typed, option.name)]
        options = {name: getattr(typed, name) for name in named}
        self.options = ReportOptions(**{**options, "command": shlex.join(command)})
        folder = typed.resume or typed.checkpoint
        self.checkpoints = None if folder is None else Checkpoints(folder)

    @abstractmethod
    def read(self, device: Any) -> None:
        """Read the rows and plan the fit."""

    @abstractmethod
    def fit(self) -> SectionedReport:
        """Return the report of an explainer, which it fits, and first what is explained."""

    def threads(self) -> AbstractContextManager[None]:
        """Context in which torch uses the number of threads that suits the run."""
        return nullcontext()

    def run(self) -> int:
        """Exit code of the command that it runs: 0, or 130 if interrupted. The model is written
        first, and stays if what follows fails.

        Raises:
            KeyboardInterrupt: before there was anything to write.
        """
        typed, out, ended = self.typed, Path(self.typed.out), None
        device = device_of(typed.device)
        with output_folder(out, typed.overwrite, OUTPUTS) as folder:
            with short_warnings() as printed:
                self.read(device)
                with self.threads():
                    report = self.fit()
            with self.threads():
                result = report.result
                if len(result.history) == 0 and result.sampler is None:
                    raise KeyboardInterrupt
                say = partial(show_progress, quiet=typed.quiet)
                report.sections = sections = Sections(not result.interrupted, say, warn)
                sections.warnings += printed
                with deferred_interrupts():
                    report.write_model(folder)
                try:
                    results = report.write_results(folder)
                except (Exception, KeyboardInterrupt) as error:
                    # Without room for the results the folder is left as it was.
                    if is_full_disk(error):
                        raise
                    _keep_model(folder)
                    ended = error
        if ended is None:
            print_report(results, out)
            return 0 if sections.complete else INTERRUPTED
        stopped = isinstance(ended, KeyboardInterrupt)
        why = "interrupted" if stopped else "not all was done"
        show_progress(f"{why}: {out} holds the fitted explainer, and not what follows from it")
        if not stopped:
            raise ended
        return INTERRUPTED


def _keep_model(folder: Path) -> None:
    """Remove all but the model."""
    with deferred_interrupts(raises=False):
        for path in folder.iterdir():
            if path.name not in MODEL:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
