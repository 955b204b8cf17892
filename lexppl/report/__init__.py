"""Report of an explainer: page, tables and posterior."""

from lexppl.report.report import Report

__all__ = ["Report"]
