"""`lexppl explain` of images and of texts."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial

import torch

from lexppl.cli.explain_command import ExplainRun
from lexppl.cli.image_text_rows import read_images, read_texts
from lexppl.cli.options.checks import TEXTS, kind_of_data
from lexppl.cli.options.plan_options import typed_settings
from lexppl.cli.terminal import show_progress
from lexppl.report.divided_rows import DividedRows
from lexppl.report.rows import ReportOfRows, plan_of_rows
from lexppl.systems.fit_plan import FitPlan


def run_explain_rows(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain` of images or texts; the exit code."""
    return RowsRun(options, command).run()


class RowsRun(ExplainRun):
    """One run of `lexppl explain` on images or on texts."""

    source: DividedRows
    plan: FitPlan

    def read(self, device: torch.device) -> None:
        typed = self.typed
        read = read_texts if kind_of_data(typed) == TEXTS else read_images
        self.source = read(typed, device)
        settings = typed_settings(typed, typed.method)
        self.plan = plan_of_rows(self.source, typed.method, **settings)
        if self.source.data.left_out:
            show_progress(self.source.data.left_out, typed.quiet)

    def fit(self) -> ReportOfRows:
        return ReportOfRows(
            self.source,
            self.plan,
            progress=self.progress,
            checkpoints=self.checkpoints,
            say=partial(show_progress, quiet=self.typed.quiet),
            **vars(self.options),
        ).fit()
