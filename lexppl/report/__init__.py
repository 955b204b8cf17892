"""Report of an explainer: page, tables and posterior."""

from lexppl.report.report import Report
from lexppl.report.results.gains import FittedTable

__all__ = ["FittedTable", "Report"]
