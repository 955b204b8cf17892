"""Report of an explainer: page, tables and posterior."""

from lexppl.report.divided_rows import divided_rows
from lexppl.report.report import Report
from lexppl.report.rows import ReportOfRows, plan_of_rows

__all__ = ["Report", "ReportOfRows", "divided_rows", "plan_of_rows"]
