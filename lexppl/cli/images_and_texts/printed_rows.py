"""What `lexppl explain` prints of images and of texts."""

from pathlib import Path

import pandas as pd

from lexppl.cli.images_and_texts.found_rows import FoundRows
from lexppl.cli.report.ranked import ranked_features, ranking_head
from lexppl.cli.report.single_rows import row_text
from lexppl.cli.tables import score_cells, text_table
from lexppl.explanation.reading.masks import PROBABILITY

SHOWN = 20
"""Entries or words."""
SHOWN_KEPT = 0.05
"""Of a word, below which it shows as 0 and is of no class."""
WORD_HEAD = ("word", "kept", "95 % interval", "in the texts", "share kept", "mostly in")


def print_rows(found: FoundRows, folder: Path, single_rows: bool) -> None:
    """Print what was found.

    Args:
        found: all of it.
        folder: where it was written.
        single_rows: whether --row was typed, whose rows are then printed too.
    """
    for line in found.summary():
        print(line)
    print()
    data = found.source.data
    if found.kind is PROBABILITY:
        print(f"{size_line(found)}\n")
    print(ranking_title(found))
    if found.source.are_texts:
        print(text_table(WORD_HEAD, word_cells(found.ranking, SHOWN)))
    else:
        ranking = ranked_features(found.ranking)[:SHOWN]
        head = ranking_head(found.kind, False)
        print(text_table(["row and column", *head[1:]], [one.cells for one in ranking]))
    more = len(found.ranking) - SHOWN
    if more > 0:
        print(f"  … and {more:,} more in {folder / 'importance.csv'}")
    for row in found.rows if single_rows else ():
        print(f"\n{row_text(row)}")
    print(f"\nHeld-out rows: {len(found.source.test)}")
    head, rows = score_cells(found.judgement.scores)
    print(text_table([head[0], data.entries.partition(" of ")[0], *head[2:]], rows))
    print(f"\nWritten to {folder}: {', '.join(found.written())}")


def size_line(found: FoundRows) -> str:
    """How many entries a row keeps, in a sentence."""
    size, data = found.size, found.source.data
    row = f"{'An' if data.rows[0] in 'aeiou' else 'A'} {data.rows}"
    if found.plan.k is not None:
        fewer = ", and one of fewer all it has" if found.source.are_texts else ""
        return f"{row} keeps {found.plan.k} of {data.n_entries} {data.entries}{fewer}."
    return (
        f"{row} keeps {size.mean:.1f} of {data.n_entries} {data.entries} on average "
        f"({size.interval}; nine in ten keep {size.few:.0f} to {size.many:.0f})."
    )


def ranking_title(found: FoundRows) -> str:
    """What is ranked."""
    if found.source.are_texts:
        count = len(found.source.test)
        return f"Words by how much of them is kept, summed over {count:,} held-out texts"
    what = found.source.data.entries
    meaning = found.kind.meaning.replace("the feature", "it")
    return f"Ranked {what}, by {meaning}, mean over held-out images"


def word_cells(ranking: pd.DataFrame, count: int) -> list[list[str]]:
    """The first words as cells of a table."""
    cells = []
    for word, line in ranking.head(count).iterrows():
        lower, upper = float(line["lower"]), float(line["upper"])
        interval = "–" if pd.isna(lower) else f"{lower:.1f} – {upper:.1f}"
        cells.append(
            [
                str(word),
                f"{float(line['kept']):.1f}",
                interval,
                str(int(line["count"])),
                f"{float(line['share']):.2f}",
                str(line["mostly_in"]) if abs(float(line["kept"])) >= SHOWN_KEPT else "–",
            ]
        )
    return cells
