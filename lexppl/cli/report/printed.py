"""What `lexppl explain` prints."""

import textwrap
from pathlib import Path

from lexppl.cli.judged.encoded_choice import QUESTION
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.first_screen import first_screen_of
from lexppl.cli.report.posterior_words import consistency, printed_interval
from lexppl.cli.report.ranked import ranked_lines, ranking_head
from lexppl.cli.report.single_rows import row_text
from lexppl.cli.report.words import gain_meaning
from lexppl.cli.tables import score_cells, text_table
from lexppl.explanation.reading.sentences import plain

SHOWN_FEATURES = 20


def print_findings(findings: ReportData, folder: Path, prints_rows: bool) -> None:
    """Print what was found.

    Args:
        findings: all of it.
        folder: where it was written.
        prints_rows: whether single rows are printed too.
    """
    for line in findings.summary():
        print(line)
    for question, answer in first_screen_of(findings).answers():
        print(f"\n{question}\n{_indented(plain(answer))}")
    print()
    kind, gains = findings.kind, findings.gains
    ranking = ranked_lines(findings.ranking, None if gains is None else gains.groups)
    what = f"Ranked features: {kind.meaning}"
    if gains is not None:
        what = f"Ranked groups of features: gain in nats, and {kind.meaning}"
    print(f"{what}, mean over held-out rows")
    in_folds = findings.source.fold is not None
    head = ranking_head(kind, gains is not None, consistency(findings), in_folds=in_folds)
    print(text_table(head, [feature.cells for feature in ranking[:SHOWN_FEATURES]]))
    more = len(ranking) - SHOWN_FEATURES
    if more > 0:
        print(f"  … and {more} more in {folder / 'importance.csv'}")
    if gains is not None:
        print(_indented(gain_meaning(gains)))
    if findings.plan.posterior is not None:
        print(f"  {printed_interval(findings)}")
    for row in findings.closer.rows if prints_rows else ():
        print()
        print(row_text(row))
    if findings.calls is not None:
        print(f"\n{_indented(findings.calls)}")
    print()
    print(f"Held-out rows: {len(findings.source.test_rows)}")
    print(text_table(*score_cells(findings.judgement.scores)))
    leak = findings.choice.answer()
    if leak is not None:
        print(QUESTION)
        print(_indented(leak))
    print()
    print(f"Written to {folder}: {', '.join(findings.written())}")


def _indented(text: str) -> str:
    return textwrap.fill(
        text, 100, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
    )
