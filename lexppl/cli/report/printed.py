"""What `lexppl explain` prints."""

import textwrap
from pathlib import Path

import pandas as pd

from lexppl.cli.report.data import Report, RowsReport, TableReport
from lexppl.cli.report.ranking import ranked_features, ranked_lines, ranking_head
from lexppl.cli.report.sentences import (
    FirstScreen,
    consistency,
    first_screen_of,
    gain_meaning,
    printed_interval,
    screen_of_rows,
)
from lexppl.cli.results.encoded_choice import QUESTION
from lexppl.cli.results.scores import score_cells
from lexppl.cli.results.single_rows import row_text
from lexppl.cli.terminal import show, text_table
from lexppl.explanation.reading.sentences import plain

SHOWN = 20  # Lines of a ranking
WORD_HEAD = ("word", "alone", "beyond others", "in texts", "share kept", "mostly in")


def print_table_report(report: TableReport, folder: Path) -> None:
    """Print a table's report; its single rows if --row was typed."""
    _print_answers(report, first_screen_of(report))
    kind, gains = report.kind, report.gains
    ranking = ranked_lines(report.ranking, None if gains is None else gains.groups)
    what = f"Ranked features: {kind.meaning}"
    if gains is not None:
        what = (
            f"Ranked groups of features: gain, and what they say alone, in nats, and {kind.meaning}"
        )
    show(f"{what}, mean over held-out rows")
    in_folds = report.source.fold is not None
    head = ranking_head(kind, gains is not None, consistency(report), in_folds=in_folds)
    show(text_table(head, [feature.cells for feature in ranking[:SHOWN]]))
    more = len(ranking) - SHOWN
    if more > 0:
        show(f"  … and {more} more in {folder / 'importance.csv'}")
    if gains is not None:
        show(_indented(gain_meaning(gains)))
    if report.plan.posterior is not None:
        show(f"  {printed_interval(report)}")
    for row in report.details.rows if report.options.row else ():
        show(f"\n{row_text(row)}")
    if report.calls is not None:
        show(f"\n{_indented(report.calls)}")
    _print_scores(report, "features", len(report.source.test_rows))
    leak = report.choice.answer()
    if leak is not None:
        show(f"{QUESTION}\n{_indented(leak)}")
    show(f"\nWritten to {folder}: {', '.join(report.files())}")


def print_rows_report(report: RowsReport, folder: Path) -> None:
    """Print the report of images or texts; its single rows if --row was typed."""
    _print_answers(report, screen_of_rows(report))
    show(ranking_title(report))
    if report.source.are_texts:
        show(text_table(WORD_HEAD, word_cells(report.ranking, SHOWN)))
    else:
        ranking = ranked_features(report.ranking)[:SHOWN]
        head = ranking_head(report.kind, False)
        show(text_table(["row and column", *head[1:]], [one.cells for one in ranking]))
    more = len(report.ranking) - SHOWN
    if more > 0:
        show(f"  … and {more:,} more in {folder / 'importance.csv'}")
    for row in report.rows if report.options.row else ():
        show(f"\n{row_text(row)}")
    _print_scores(report, report.entries, len(report.source.test))
    show(f"\nWritten to {folder}: {', '.join(report.files())}")


def _print_answers(report: TableReport | RowsReport, screen: FirstScreen) -> None:
    show("\n".join(report.summary()))
    for question, answer in screen.answers():
        show(f"\n{question}\n{_indented(plain(answer))}")
    show()


def _print_scores(report: Report, entries: str, rows: int) -> None:
    black_box = report.options.black_box
    show(f"\n{'Rows held out from the explainer' if black_box else 'Held-out rows'}: {rows}")
    show(text_table(*score_cells(report.judgement.scores, entries)))


def ranking_title(report: RowsReport) -> str:
    """Title of the ranking."""
    if (words := report.words) is not None:
        count = int(words.table["found"].sum())
        found = f"the first {count} are found" if count > 1 else "the first is found"
        return (
            f"Words by what they say of {report.source.data.target_name} in {words.texts:,} texts, "
            f"in nats a text; {found if count else 'none is found'}"
        )
    meaning = report.kind.meaning.replace("the feature", "it")
    return f"Ranked {report.source.data.entries}, by {meaning}, mean over held-out images"


def word_cells(ranking: pd.DataFrame, count: int) -> list[list[str]]:
    """The first words as cells of a table."""
    return [
        [
            str(word),
            *("–" if pd.isna(line[name]) else f"{line[name]:.4f}" for name in ("first", "last")),
            str(line["texts"]),
            "–" if pd.isna(line["share"]) else f"{line['share']:.2f}",
            str(line["mostly_in"]),
        ]
        for word, line in ranking.head(count).iterrows()
    ]


def _indented(text: str) -> str:
    return textwrap.fill(
        text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
