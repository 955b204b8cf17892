"""The report of images or texts as one HTML page."""

from pathlib import Path
from typing import Any

from markupsafe import Markup

from lexppl.cli.image_text_rows import written_words
from lexppl.cli.report.charts import history_chart, sizes_chart
from lexppl.cli.report.data import RowsReport
from lexppl.cli.report.image_text_parts import image_parts, text_parts
from lexppl.cli.report.page import HEAD, objective, rendered, run_settings, shared_context
from lexppl.cli.report.printed import WORD_HEAD, ranking_title, word_cells
from lexppl.cli.report.sentences import screen_of_rows
from lexppl.cli.results.single_rows import row_block
from lexppl.data.texts import TextDataset
from lexppl.explanation.reading.masks import PROBABILITY
from lexppl.explanation.reading.sentences import html

SHOWN_WORDS = 30


def write_rows_report(report: RowsReport, path: Path) -> None:
    """Write the report as one HTML file."""
    first = ["words.html"] if report.source.are_texts else []
    last = ["single_rows.html"] if report.source.are_texts and report.rows else []
    parts = (*HEAD, "maps.css", "opening.html", *first, "part.html", *last, "closing.html")
    path.write_text(rendered(*parts, **_context(report)), encoding="utf-8")


def _context(report: RowsReport) -> dict[str, Any]:
    curve, history = report.judgement.curve, history_chart(report.result.history)
    sizes = None if curve is None else sizes_chart(curve, "accuracy")
    context: dict[str, Any] = {
        **shared_context(report, report.entries, "accuracy"),
        "subtitle": " · ".join(report.summary()[1:]),
        "answers": [
            (question, html(answer)) for question, answer in screen_of_rows(report).answers()
        ],
        "part": _part(report),
        "reading": _reading(report),
        "pictures": {"sizes": sizes, "history": history},
        "settings": _settings(report),
    }
    if not report.source.are_texts:
        row = report.rows[0].number if report.rows else report.numbers[0][0]
        return context | {"snippet": "patches", "first_row": row}
    return context | {
        "word_head": WORD_HEAD,
        "words": word_cells(report.ranking, SHOWN_WORDS),
        "words_title": ranking_title(report),
        "single_rows": [row_block(row) for row in report.rows],
        "snippet": "words",
    }


def _part(report: RowsReport) -> Markup:
    """The images or the texts themselves."""
    first, requested = report.numbers
    source = report.source
    if not isinstance(source.test, TextDataset):
        shown = [row.number for row in report.rows]
        parts = image_parts(report.posterior, () if requested else shown)
        if report.requested is not None:
            parts["rows"] = image_parts(report.requested, requested)["rows"]
        return rendered("image_part.html", parts=parts)
    texts = text_parts(report.posterior, source.test.words[: len(first)])
    if report.requested is not None:
        words = written_words(source.by_number(requested))
        own = text_parts(report.requested, words, requested)
        texts["groups"] = [own["groups"][0], *texts["groups"]]
    return rendered("text_part.html", parts=texts)


def _reading(report: RowsReport) -> list[str]:
    """How to read it, a paragraph each."""
    rows, hidden = report.source.data.rows, report.hidden_by.partition(": ")[2] or report.hidden_by
    first = f"For each {rows} the explainer {report.distribution}. "
    if report.kind is PROBABILITY:
        first = (
            f"For each {rows} the explainer {report.distribution}, replaces the others with "
            f"{hidden}, and predicts from the result. "
        )
    paragraphs = [
        f"{first}This is about prediction, not about cause: of two {report.entries} that say the "
        "same, an explainer may take either."
    ]
    if report.plan.replicates > 1:
        paragraphs.append(
            f"{report.plan.replicates} replicates were fitted from different seeds, on the same "
            "rows: intervals show how far they differ, and speak of the fit, not of the sample of "
            "rows."
        )
    return paragraphs


def _settings(report: RowsReport) -> list[tuple[str, str]]:
    source, plan, history = report.source, report.plan, report.result.history
    settings = [
        ("data", f"{report.options.data}: {source.data.shape}"),
        ("rows", report.summary()[1]),
        ("masks", f"{source.data.n_entries} {source.data.entries}; {report.distribution}"),
        ("hidden", report.hidden_by),
        ("networks", repr(source.architecture)),
        ("objective", objective(plan)),
        (
            "fit",
            f"{len(history)} epochs of batches of {plan.batch_size}, Adam at "
            f"{plan.learning_rate:g}, weight decay {plan.weight_decay:.3g}; "
            f"{float(history.seconds.sum()):.0f} s",
        ),
        ("best epochs", ", ".join(str(int(epoch) + 1) for epoch in report.result.best_epoch)),
        ("replicates", str(plan.replicates)),
        *run_settings(report),
    ]
    if plan.penalty is not None:
        settings.insert(3, ("penalty", f"λ = {plan.penalty:.3g} nats"))
    return settings
