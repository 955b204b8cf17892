"""What `lexppl explain` prints."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lexppl.cli.report.data import Report, TableReport
from lexppl.cli.report.ranking import ranked_lines, ranking_cells, ranking_head
from lexppl.cli.report.sentences import consistency, first_screen, gain_meaning, posterior_meaning
from lexppl.cli.results.encoded_choice import QUESTION
from lexppl.cli.results.scores import score_cells
from lexppl.cli.results.single_rows import row_text
from lexppl.cli.terminal import IMPORTANCE, show, text_table
from lexppl.explanation.reading.sentences import plain

SHOWN = 20  # Lines of a ranking
WORD_HEAD = ("word", "alone", "beyond others", "in texts", "share kept", "mostly in")


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


def ranking_title(report: Report) -> str:
    """Title of the ranking."""
    meaning = report.kind.meaning
    if isinstance(report, TableReport):
        what = f"Ranked features: {meaning}"
        if report.gains is not None:
            what = (
                f"Ranked groups of features: gain, and what they say alone, in nats, and {meaning}"
            )
        return f"{what}, mean over held-out rows"
    source = report.source
    if (words := report.words) is not None:
        count = int(words.table["found"].sum())
        found = f"the first {count} are found" if count > 1 else "the first is found"
        return (
            f"Words by what they say of {source.data.target_name} in {words.texts:,} texts, in "
            f"nats a text; {found if count else 'none is found'}"
        )
    meaning = meaning.replace("the feature", "it")
    return f"Ranked {source.data.entries}, by {meaning}, mean over held-out images"


def _ranking(report: Report) -> tuple[Sequence[str], list[list[str]]]:
    """Head and lines of the ranking."""
    if isinstance(report, TableReport):
        gains, in_folds = report.gains, report.source.fold is not None
        lines = ranked_lines(report.ranking, None if gains is None else gains.groups)
        head = ranking_head(report.kind, gains is not None, consistency(report), in_folds=in_folds)
        return head, ranking_cells(lines)
    if report.source.are_texts:
        return WORD_HEAD, word_cells(report.ranking)
    head = ["row and column", *ranking_head(report.kind, False)[1:]]
    return head, ranking_cells(ranked_lines(report.ranking, None))


def word_cells(ranking: pd.DataFrame) -> list[list[str]]:
    """Words as cells of a table."""
    return [
        [
            str(word),
            *("–" if pd.isna(line[name]) else f"{line[name]:z.4f}" for name in ("first", "last")),
            str(line["texts"]),
            "–" if pd.isna(line["share"]) else f"{line['share']:.2f}",
            str(line["mostly_in"]) if line["found"] else "–",
        ]
        for word, line in ranking.iterrows()
    ]


def _indented(text: str) -> str:
    return textwrap.fill(
        text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
