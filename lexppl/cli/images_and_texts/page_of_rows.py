"""The report on images or texts: everything that was found, in one page that needs no other
file."""

import importlib.metadata
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lexppl.choices.imputers import data_held_by
from lexppl.cli.images_and_texts.divided_rows import words_of
from lexppl.cli.images_and_texts.found_rows import FoundRows
from lexppl.cli.images_and_texts.printed_rows import (
    WORD_HEAD,
    ranking_title,
    size_line,
    word_cells,
)
from lexppl.cli.images_and_texts.ranked_words import UNKNOWN_WORDS
from lexppl.cli.report.captions import sizes_caption
from lexppl.cli.report.first_screen import FirstScreen, commonest
from lexppl.cli.report.images_and_texts.image_parts import image_parts
from lexppl.cli.report.images_and_texts.text_parts import text_parts
from lexppl.cli.report.page import objective, versions, with_spreads
from lexppl.cli.report.pictures import history_chart, sizes_chart
from lexppl.cli.report.single_rows import row_block
from lexppl.cli.report.template import HEAD, rendered
from lexppl.cli.report.words import notes_on_scores
from lexppl.cli.tables import score_cells
from lexppl.data import TextDataset
from lexppl.explanation.reading.masks import PROBABILITY
from lexppl.explanation.reading.sentences import BOLD, NAMED, PLAIN, RESTS_ON, html
from lexppl.summary import listed

SHOWN_WORDS = 30


def write_page(found: FoundRows, path: Path) -> None:
    """Write the report as one HTML file."""
    first = ["words.html"] if found.source.are_texts else []
    last = ["single_rows.html"] if found.source.are_texts and found.rows else []
    parts = (*HEAD, "maps.css", "opening.html", *first, "part.html", *last, "closing.html")
    page = rendered(*parts, **_context(found))
    path.write_text(page, encoding="utf-8")


def _context(found: FoundRows) -> dict[str, Any]:
    """What the template speaks of."""
    data, curve = found.source.data, found.judgement.curve
    head, rows = score_cells(found.judgement.scores)
    entries = data.entries.partition(" of ")[0]
    judged = any(row.who.startswith("EVAL-X") for row in found.judgement.scores)
    context: dict[str, Any] = {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "subtitle": " · ".join(found.summary()[1:]),
        "answers": [(question, html(answer)) for question, answer in _answers(found)],
        "warnings": found.warnings,
        "part": _part(found),
        "reading": _reading(found),
        "scores": {"head": [head[0], entries, *head[2:]], "rows": list(map(with_spreads, rows))},
        "score_notes": notes_on_scores(len(data.class_names), judged, entries),
        "sizes_caption": "" if curve is None else sizes_caption(curve, "accuracy"),
        "pictures": {
            "sizes": None if curve is None else sizes_chart(curve, "accuracy"),
            "history": history_chart(found.result.history),
        },
        "command": shlex.join(found.command),
        "settings": _settings(found),
        "files": _files(found),
        "snippet": _snippet(found),
    }
    if found.source.are_texts:
        context |= {
            "word_head": WORD_HEAD,
            "words": word_cells(found.ranking, SHOWN_WORDS),
            "words_note": _words_note(found),
            "single_rows": [row_block(row) for row in found.rows],
            "single_note": _single_note(),
        }
    return context


def _part(found: FoundRows) -> Markup:
    """The images or the texts themselves."""
    first, asked = found.numbers
    source = found.source
    if not isinstance(source.test, TextDataset):
        shown = [row.number for row in found.rows]
        parts = image_parts(found.posterior, selected=() if asked else shown)
        if found.asked is not None:
            parts = replace(parts, rows=image_parts(found.asked, selected=asked).rows)
        return rendered("image_part.html", parts=parts)
    texts = text_parts(found.posterior, source.test.words[: len(first)])
    if found.asked is not None:
        words = words_of(source.by_number(asked))
        own = text_parts(found.asked, words, selected=asked)
        texts = replace(texts, groups=(own.groups[0], *texts.groups))
    return rendered("text_part.html", parts=texts)


def _answers(found: FoundRows) -> list[tuple[str, str]]:
    """What the prediction rests on, how sure that is, and how well it predicts."""
    data, source = found.source.data, found.source
    first = f"What matters to predict {data.target_name}, by the {found.kind.label}."
    if found.kind is PROBABILITY:
        first = (
            f"To predict {data.target_name}, {size_line(found)[0].lower()}{size_line(found)[1:]}"
        )
    if source.are_texts:
        known = found.ranking.index.drop(UNKNOWN_WORDS, errors="ignore")[:NAMED]
        words = listed(f"{BOLD}{word}{PLAIN}" for word in known)
        first += f" Over all {data.rows}s most is kept of the words {words}."
    screen = FirstScreen(
        str(data.target_name),
        (),
        data.n_entries,
        len(source.test.y),
        found.result.replicates,
        base=commonest(source.train.y, data.class_names),
        selects=found.kind is PROBABILITY,
        scores=found.judgement.scores,
        entries=data.entries.partition(" of ")[0],
        row=data.rows,
    )
    return [(RESTS_ON, first), *screen.answers()[1:]]


def _reading(found: FoundRows) -> list[str]:
    """How to read it, a paragraph each."""
    data = found.source.data
    hidden = found.hidden_by.partition(": ")[2] or found.hidden_by
    first = (
        f"For each {data.rows} the explainer {found.distribution}, replaces the others with "
        f"{hidden}, and predicts from the result. "
        if found.kind is PROBABILITY
        else f"For each {data.rows} the explainer {found.distribution}. "
    )
    replicates = (
        f"{found.plan.replicates} replicates were fitted from different seeds, on the same rows: "
        "intervals show how far they differ, and speak of the fit, not of the sample of rows."
    )
    return [
        first + "This is about prediction, not about cause: of two "
        f"{data.entries.partition(' of ')[0]} that say the same, an explainer may take either.",
        *([replicates] if found.plan.replicates > 1 else []),
    ]


def _words_note(found: FoundRows) -> str:
    return (
        f"{ranking_title(found)}, mean over replicates: a word that stands in many texts and is "
        "always kept comes first. Share kept: of the places where it stands, how many are kept. "
        "Mostly in: the predicted class whose texts keep most of it. Words of one kind, as good "
        "and great, have a line each. All words are in importance.csv."
    )


def _single_note() -> str:
    return (
        "Each bar is what revealing the word adds to the log-probability of the label that is "
        "predicted, in nats, averaged over masks, imputations and replicates; the bars add up to "
        "the prediction exactly. Words are revealed in the order in which this text keeps them, "
        "the most kept first. For other texts give --row N."
    )


def _settings(found: FoundRows) -> list[tuple[str, str]]:
    source, plan, history = found.source, found.plan, found.result.history
    settings = [
        ("data", f"{found.given}: {source.data.shape}"),
        ("rows", found.summary()[1]),
        ("masks", f"{source.data.n_entries} {source.data.entries}; {found.distribution}"),
        ("hidden", found.hidden_by),
        ("networks", repr(source.architecture)),
        ("objective", objective(plan)),
        (
            "fit",
            f"{len(history)} epochs of batches of {plan.batch_size}, Adam at "
            f"{plan.learning_rate:g}, weight decay {plan.weight_decay:.3g}; "
            f"{float(history.seconds.sum()):.0f} s",
        ),
        ("best epochs", ", ".join(str(int(epoch) + 1) for epoch in found.result.best_epoch)),
        ("replicates", str(plan.replicates)),
        ("seed", str(plan.seed)),
        ("mask draws a row", str(found.draws)),
        ("device", found.device),
        *versions(),
    ]
    if plan.penalty is not None:
        settings.insert(3, ("penalty", f"λ = {plan.penalty:.3g} nats"))
    return settings


def _files(found: FoundRows) -> list[tuple[str, str]]:
    words = found.source.are_texts
    meanings: Mapping[str, str] = {
        "importance.csv": "the words by how much of them is kept, with intervals"
        if words
        else f"the {found.source.data.entries} by their row and column, with intervals",
        "rows.csv": "single rows, step by step",
        "posterior.nc": f"{found.draws} mask draws of each of {len(found.numbers[0])} held-out "
        "rows and each replicate, for ArviZ; with their log-likelihood",
        "explainer/": "the fitted model"
        + (
            f"; with the {found.plan.imputer} imputer it holds {held}"
            if (held := data_held_by(str(found.plan.imputer)))
            else ""
        ),
        "vocabulary.json": "the words that it knows, with their numbers",
        "texts.json": "how many words of a text it reads, and which end of a longer one",
    }
    return [(name, meanings[name]) for name in found.written() if name in meanings]


def _snippet(found: FoundRows) -> str:
    lines = [
        "import arviz, lexppl",
        "",
        'posterior = arviz.from_netcdf("posterior.nc")',
        'explainer = lexppl.load("explainer")',
    ]
    if not found.source.are_texts:
        row = found.rows[0].number if found.rows else found.numbers[0][0]
        return "\n".join(
            [
                *lines[:1],
                "from lexppl.plots import plot_selection_map",
                *lines[1:],
                f"plot_selection_map(posterior, [{row}])",
            ]
        )
    return "\n".join(
        [
            "import json, lexppl",
            "from lexppl.data import Vocabulary, encoded_texts",
            "from lexppl.explanation import explain",
            "from lexppl.plots import highlighted_text",
            "",
            'explainer = lexppl.load("explainer")',
            'vocabulary = Vocabulary.load("vocabulary.json")',
            'x, words = encoded_texts(["a text of yours"], vocabulary,',
            '                         **json.load(open("texts.json")))',
            "highlighted_text(explain(explainer, x), 0, words[0])",
        ]
    )
