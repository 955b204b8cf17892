"""The report as one HTML page."""

import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib.pyplot as plt
import numpy as np
from markupsafe import Markup

from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK
from lexppl.data.texts import TextDataset
from lexppl.evaluation.effects import LEAST_KEPT
from lexppl.evaluation.penalty_path import WITHIN
from lexppl.explanation.reading.masks import masks_of
from lexppl.explanation.reading.sentences import html
from lexppl.report import charts, ranking, sentences
from lexppl.report.data import Report, RowsReport, TableReport
from lexppl.report.dial import dial_data
from lexppl.report.divided_rows import written_words
from lexppl.report.fit_warnings import with_arguments
from lexppl.report.image_text_parts import image_parts, text_parts
from lexppl.report.results.encoded_choice import QUESTION
from lexppl.report.results.scores import score_cells
from lexppl.report.results.single_rows import row_block
from lexppl.summary import counted
from lexppl.systems.fit_plan import FitPlan

HEAD = ("start.html", "styles.css")
PARTS = "opening dial words ranking part single_rows heat_map choice closing"
PAGE = (*HEAD, "maps.css", *(f"{part}.html" for part in PARTS.split()))
FIRST_FEATURES, SHOWN_WORDS = 15, 30  # Of a ranking that are seen at once
VERSIONS = ("lexppl", "torch", "pyro-ppl", "numpy", "scikit-learn", "arviz")


def rendered(*parts: str, **context: Any) -> Markup:
    """Files of `templates` one after another, filled with the context, escaped."""
    loader = jinja2.PackageLoader("lexppl.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = "".join(loader.get_source(environment, part)[0] for part in parts)
    return Markup(environment.from_string(text).render(**context))


def write_report(report: Report, path: Path) -> None:
    """Write the report as one HTML file."""
    plt.switch_backend("svg")  # On a desktop a figure would else open a window.
    with plt.style.context("default"):  # Not those of the user's matplotlibrc.
        context = _shared(report, path.parent)
        context |= _of_table(report) if isinstance(report, TableReport) else _of_rows(report)
    text: str = rendered(*PAGE, **context)
    text = text if report.options.command else with_arguments(text)
    path.write_text(text, encoding="utf-8")


def _shared(report: Report, folder: Path) -> dict[str, Any]:
    """Context of the templates for rows of any kind."""
    data, scores = report.source.data, report.judgement.scores
    head, rows = score_cells(scores, report.entries)
    return {
        "report": report,
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "answers": [(q, html(answer)) for q, answer in sentences.first_screen(report).answers()],
        "decisions": getattr(report.source, "decisions", ()),
        "warnings": report.warnings,
        "single_rows": [row_block(row) for row in report.rows],
        "hidden": report.hidden_by.partition(": ")[2] or report.hidden_by,
        "scores": {"head": head, "rows": [_with_spreads(line) for line in rows]},
        "judged": any(row.who.startswith("EVAL-X") for row in scores),
        "history": charts.history_figure(report.result.history),
        "validated": bool(np.isfinite(report.result.history.valid).any()),
        "settings": _settings(report),
        "files": [(name, meaning) for name, meaning in report.files(folder).items() if meaning],
    }


def _of_table(report: TableReport) -> dict[str, Any]:
    bars, in_folds = ranking.ranking_bars(report), report.source.fold is not None
    plan, path, gains = report.plan, report.path, report.gains
    return {
        "subtitle": report.summary()[0],
        "dial": dial_data(report),
        "dial_chart": path and charts.dial_figure(path),
        "consistency": sentences.consistency(report),
        "span": ranking.RANGE if in_folds else ranking.INTERVAL,
        "in_folds": in_folds,
        "method": METHODS[plan.method].summary,
        "posterior_meaning": plan.posterior and sentences.posterior_meaning(report),
        "gain_meaning": gains and sentences.gain_meaning(gains),
        "about": report.details.directions is not None and ranking.direction_target(report),
        "picture": [bar for bar in bars if bar["gain"] and not (bar["lost"] or bar["is_member"])],
        "first_features": bars[:FIRST_FEATURES],
        "more_features": bars[FIRST_FEATURES:],
        "clear": f"{ranking.CLEAR:g}",
        "least_kept": f"{LEAST_KEPT:g}",
        "classes": ranking.class_table(report),
        "question": QUESTION,
        "choice": report.choice.answer(),
        "rows_shown": min(charts.SHOWN_ROWS, len(masks_of(report.posterior)["row"])),
        "maps": charts.rows_figures(report),
        "by_value": charts.dependence_figures(report),
        "within": f"{WITHIN:g}",
        "snippet": "table",
    }


def _of_rows(report: RowsReport) -> dict[str, Any]:
    context: dict[str, Any] = {
        "subtitle": " · ".join(report.summary()[1:]),
        "part": _part(report),
    }
    if not report.source.are_texts:
        row = report.rows[0].number if report.rows else report.numbers[0][0]
        return context | {"single_rows": (), "snippet": "patches", "first_row": row}
    return context | {
        "word_head": ranking.WORD_HEAD,
        "words": ranking.word_cells(report.ranking[:SHOWN_WORDS]),
        "words_title": ranking.ranking_title(report),
        "snippet": "words",
    }


def _part(report: RowsReport) -> Markup:
    """The images or the texts themselves."""
    (first, requested), source = report.numbers, report.source
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


def _with_spreads(line: list[str]) -> list[Any]:
    """Figures apart from their spread, which a narrow page hides."""
    figures = [cell.replace("-", "−").partition(" ± ") for cell in line[1:]]
    return [line[0], *({"value": value, "spread": spread} for value, _, spread in figures)]


def _settings(report: Report) -> list[tuple[str, str]]:
    """What was run, by name."""
    plan, result, options = report.plan, report.result, report.options
    if isinstance(report, TableReport):
        table, networks = report, _networks(plan)
    else:
        table, networks = None, repr(report.source.architecture)
    sampler, history, black_box = result.sampler, result.history, options.black_box
    own_rate = None if plan.rate_given else METHODS[plan.method].own_rate
    fit = (
        f"{counted(len(history), 'epoch')} of batches of {plan.batch_size}, Adam at "
        f"{own_rate or format(plan.learning_rate, 'g')}, weight decay {plan.weight_decay:g}; "
        f"{float(history.seconds.sum()):.0f} s"
    )
    best = "the last"
    if not plan.penalties:
        best = ", ".join(str(int(epoch) + 1) for epoch in result.best_epoch)
    penalty = f"λ = {plan.penalty:.3g} nats" if isinstance(plan.penalty, float) else None
    if table and penalty and table.path is not None:
        low, high = table.path.fitted.penalty_range
        penalty += f", from the data; one fit of all from {low:.2g} to {high:.2g}"
    objective = METHODS[plan.method].summary
    if METHODS[plan.method].takes("imputations"):
        objective = (
            f"annealed nested bound, {counted(plan.masks or 1, 'mask')} × "
            f"{counted(plan.imputations or 1, 'imputation')}"
        )
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    named = {
        "data": f"{options.data or report.source.data.name}: {report.shape}",
        "target": report.target_text,
        "rows": report.rows_text,
        "black box": table and black_box and f"{black_box}: {table.calls}",
        "regime": table and f"{plan.regime.value}: {table.explained_text}",
        "masks": report.distribution,
        "penalty": penalty,
        "weights": plan.posterior and plan.posterior.words,
        f"hidden {report.entries}": report.hidden_by,
        "networks": networks,
        "predictor": table and table.predictor,
        "objective": objective,
        "fit": fit if sampler is None else sentences.draws_text(report),
        "epoch kept": best if sampler is None else None,
        "posterior": sampler and (sampler.summary or "independent draws"),
        "replicates" if sampler is None else "chains": str(plan.replicates),
        "seed": str(plan.seed),
        "mask draws a row": str(options.draws),
        "device": report.source.test.x.device,
        "versions": versions,
        "Python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
    }
    return [(name, str(value)) for name, value in named.items() if value is not None]


def _networks(plan: FitPlan) -> str:
    predictor = ""
    if plan.predictor_kind == NETWORK:
        predictor = f", predictor {_widths(plan.settings['predictor_hidden'])}"
    return f"selector {_widths(plan.hidden)}{predictor}, ReLU"


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)
