"""What `lexppl explain` prints."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from lexppl.choices.files import IMPORTANCE
from lexppl.cli.terminal import show, text_table
from lexppl.explanation.reading.sentences import plain
from lexppl.report.data import Report, TableReport
from lexppl.report.ranking import (
    WORD_HEAD,
    ranked_lines,
    ranking_cells,
    ranking_head,
    ranking_title,
    word_cells,
)
from lexppl.report.results.encoded_choice import QUESTION
from lexppl.report.results.scores import score_cells
from lexppl.report.results.single_rows import ExplainedRow, row_block
from lexppl.report.sentences import consistency, first_screen, gain_meaning, posterior_meaning

SHOWN = 20  # Lines of a ranking


def print_report(report: Report, folder: Path) -> None:
    """Print a report; its single rows if --row was typed."""
    show("\n".join(report.summary()))
    for question, answer in first_screen(report).answers():
        show(f"\n{question}\n{_indented(plain(answer))}")
    show(f"\n{ranking_title(report)}")
    head, cells = _ranking(report)
    show(text_table(head, cells[:SHOWN]))
    more = len(cells) - SHOWN
    if more > 0:
        show(f"  … and {more:,} more in {folder / IMPORTANCE}")
    table = report if isinstance(report, TableReport) else None
    if table and table.gains is not None:
        show(_indented(gain_meaning(table.gains)))
    if table and table.plan.posterior is not None:
        show(_indented(posterior_meaning(table)))
    for row in report.rows if report.options.row else ():
        show(f"\n{row_text(row)}")
    if table and table.calls is not None:
        show(f"\n{_indented(table.calls)}")
    held_out = "Rows held out from the explainer" if report.options.black_box else "Held-out rows"
    show(f"\n{held_out}: {len(report.source.test.y)}")
    show(text_table(*score_cells(report.judgement.scores, report.entries)))
    if table and (leak := table.choice.answer()) is not None:
        show(f"{QUESTION}\n{_indented(leak)}")
    show(f"\nWritten to {folder}: {', '.join(report.files(folder))}")


def _ranking(report: Report) -> tuple[Sequence[str], list[list[str]]]:
    """Head and lines of the ranking."""
    if isinstance(report, TableReport):
        has_gains, in_folds = report.gains is not None, report.source.fold is not None
        head = ranking_head(report.kind, has_gains, consistency(report), in_folds=in_folds)
    elif report.source.are_texts:
        return WORD_HEAD, word_cells(report.ranking)
    else:
        head = ["row and column", *ranking_head(report.kind, False)[1:]]
    return head, ranking_cells(ranked_lines(report))


def row_text(row: ExplainedRow) -> str:
    """A row's steps for a terminal."""
    block = row_block(row)
    head = ["feature", "value", block["step_name"], block["total_name"]]
    lines = [[bar["name"], bar["value"] or "", bar["step"], bar["total"]] for bar in block["bars"]]
    title = f"Row {row.number} ({row.why}): {block['predicted']}, observed {row.observed}"
    return f"{title}\n{text_table(head, lines)}"


def _indented(text: str) -> str:
    return textwrap.fill(
        text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
