"""What `lexppl explain` found, as files."""

from pathlib import Path

import pandas as pd

from lexppl.cli.outputs import DIRECTIONS, GROUPS, IMPORTANCE, PATH, POSTERIOR, REPORT, ROWS
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.page import write_report
from lexppl.explanation import save_posterior
from lexppl.tabular.response_units import in_response_units

DIGITS = "%.4g"
"""Of numbers in tables for people; what is computed with is in posterior.nc."""


def write_findings(folder: Path, findings: ReportData) -> None:
    """The posterior, the tables and the report.

    Args:
        folder: that is there.
        findings: what was found.

    Raises:
        OSError: a file cannot be written.
    """
    posterior, data = findings.posterior, findings.source.data
    if data.class_names is None and data.encoding is not None:
        posterior = in_response_units(posterior, data.encoding.target)
    save_posterior(posterior, folder / POSTERIOR)
    findings.ranking.to_csv(folder / IMPORTANCE, float_format=DIGITS)
    if findings.gains is not None:
        findings.gains.groups.to_csv(folder / GROUPS, float_format=DIGITS)
    closer = findings.closer
    if closer.directions is not None:
        closer.directions.to_csv(folder / DIRECTIONS, index=False, float_format=DIGITS)
    if closer.rows:
        lines = pd.concat([row.lines() for row in closer.rows], ignore_index=True)
        lines.to_csv(folder / ROWS, index=False, float_format=DIGITS)
    if findings.path is not None:
        findings.path.table.to_csv(folder / PATH, index=False)
    write_report(findings, folder / REPORT)
