"""The report of a table as one HTML page, and what the pages of all kinds share."""

import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from lexppl.choices.imputers import hidden_by
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK
from lexppl.cli.report.charts import SHOWN_ROWS, pictures
from lexppl.cli.report.data import Report, TableReport
from lexppl.cli.report.dial import dial_chart, dial_data
from lexppl.cli.report.ranking import (
    CLEAR,
    INTERVAL,
    RANGE,
    class_table,
    direction_target,
    ranking_bars,
)
from lexppl.cli.report.sentences import consistency, draws_text, first_screen_of, reading
from lexppl.cli.results.encoded_choice import QUESTION
from lexppl.cli.results.scores import score_cells
from lexppl.cli.results.single_rows import row_block
from lexppl.evaluation.effects import LEAST_KEPT
from lexppl.evaluation.penalty_path import WITHIN
from lexppl.explanation.reading.masks import masks_of
from lexppl.explanation.reading.sentences import html
from lexppl.summary import counted
from lexppl.tabular.fit_plan import FitPlan

HEAD = ("start.html", "styles.css")
TABLE = (
    *HEAD,
    "opening.html",
    "dial.html",
    "ranking.html",
    "single_rows.html",
    "heat_map.html",
    "choice.html",
    "closing.html",
)
FIRST_FEATURES = 15  # Features of the ranking that are seen at once
VERSIONS = ("lexppl", "torch", "pyro-ppl", "numpy", "scikit-learn", "arviz")


def rendered(*parts: str, **context: Any) -> Markup:
    """Files of `templates` one after another, filled with the context, escaped."""
    loader = jinja2.PackageLoader("lexppl.cli.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = "".join(loader.get_source(environment, part)[0] for part in parts)
    return Markup(environment.from_string(text).render(**context))


def write_report(report: TableReport, path: Path) -> None:
    """Write the report as one HTML file."""
    path.write_text(rendered(*TABLE, **_context(report)), encoding="utf-8")


def shared_context(report: Report, entries: str, figure: str) -> dict[str, Any]:
    """Context of the templates that pages of all kinds share."""
    data = report.source.data
    head, rows = score_cells(report.judgement.scores, entries)
    return {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "decisions": getattr(report.source, "decisions", ()),
        "warnings": report.warnings,
        "scores": {"head": head, "rows": [_with_spreads(line) for line in rows]},
        "classes_scored": len(data.class_names or ()),
        "judged": any(row.who.startswith("EVAL-X") for row in report.judgement.scores),
        "entries": entries,
        "figure": figure,
        "curve": report.judgement.curve,
        "validated": bool(np.isfinite(report.result.history.valid).any()),
        "black_box": report.options.black_box,
        "command": shlex.join(report.command),
        "files": [(name, meaning) for name, meaning in report.files().items() if meaning],
    }


def _context(report: TableReport) -> dict[str, Any]:
    data, path, bars = report.source.data, report.path, ranking_bars(report)
    figure = "R²" if data.class_names is None else "accuracy"
    return {
        **shared_context(report, "features", figure),
        "subtitle": report.summary()[0],
        "answers": [(q, html(answer)) for q, answer in first_screen_of(report).answers()],
        "dial": dial_data(report),
        "dial_chart": path and dial_chart(path),
        "labels": data.class_names is not None,
        "replicates": report.plan.replicates,
        "kind": report.kind,
        "consistency": consistency(report),
        "span": RANGE if report.source.fold is not None else INTERVAL,
        "gains": report.gains is not None,
        "about": direction_target(report) if report.details.directions is not None else None,
        "first_features": bars[:FIRST_FEATURES],
        "more_features": bars[FIRST_FEATURES:],
        "clear": f"{CLEAR:g}",
        "least_kept": f"{LEAST_KEPT:g}",
        "classes": class_table(report),
        "single_rows": [row_block(row) for row in report.details.rows],
        "reading": reading(report),
        "question": QUESTION,
        "choice": report.choice.answer(),
        "rows_shown": min(SHOWN_ROWS, len(masks_of(report.posterior)["row"])),
        "pictures": pictures(report, figure),
        "path": path,
        "within": f"{WITHIN:g}",
        "settings": _settings(report),
        "snippet": "table",
        "encoded": data.encoding is not None,
    }


def _with_spreads(line: list[str]) -> list[Any]:
    """Figures apart from their spread, which a narrow page hides."""
    figures = [cell.replace("-", "−").partition(" ± ") for cell in line[1:]]
    return [line[0], *({"value": value, "spread": spread} for value, _, spread in figures)]


def objective(plan: FitPlan) -> str:
    """What is maximised, in words."""
    if not METHODS[plan.method].takes("imputations"):
        return METHODS[plan.method].summary
    return (
        f"annealed nested bound, {counted(plan.masks or 1, 'mask')} × "
        f"{counted(plan.imputations or 1, 'imputation')}"
    )


def _settings(report: TableReport) -> list[tuple[str, str]]:
    data, plan, result = report.source.data, report.plan, report.result
    sampler, history, black_box = result.sampler, result.history, report.options.black_box
    own_rate = None if plan.rate_given else METHODS[plan.method].own_rate
    networks = f"selector {_widths(plan.hidden)}, ReLU"
    if plan.predictor_kind == NETWORK:
        predictor = _widths(plan.own_predictor_hidden)
        networks = f"selector {_widths(plan.hidden)}, predictor {predictor}, ReLU"
    fit = (
        f"{counted(len(history), 'epoch')} of batches of {plan.batch_size}, Adam at "
        f"{own_rate or format(plan.learning_rate, 'g')}, weight decay {plan.weight_decay:g}; "
        f"{float(history.seconds.sum()):.0f} s"
    )
    best = ", ".join(str(int(epoch) + 1) for epoch in result.best_epoch)
    kept = ("epoch kept", "the last" if plan.penalties else best)
    if sampler is not None:
        fit = draws_text(report)
        kept = ("posterior", sampler.summary or "independent draws")
    settings = [
        ("data", f"{report.options.data}: {len(data)} rows, {data.n_entries} features"),
        ("target", report.target_text),
        ("rows", report.rows_text),
        ("regime", f"{plan.regime.value}: {report.explained_text}"),
        ("masks", report.distribution),
        ("hidden features", f"{plan.imputer}: {hidden_by(str(plan.imputer))}"),
        ("networks", networks),
        ("predictor", report.predictor),
        ("objective", objective(plan)),
        ("fit", fit),
        kept,
        ("replicates" if sampler is None else "chains", str(plan.replicates)),
        *run_settings(report),
    ]
    if plan.posterior is not None:
        settings.insert(5, ("weights", plan.posterior.words))
    if isinstance(plan.penalty, float):
        chosen = ""
        if (path := report.path) is not None:
            low, high = path.fitted.penalty_range
            chosen = f", from the data; one fit of all from {low:.2g} to {high:.2g}"
        settings.insert(5, ("penalty", f"λ = {plan.penalty:.3g} nats{chosen}"))
    if black_box is not None:
        settings.insert(3, ("black box", f"{black_box}: {report.calls}"))
    return settings


def run_settings(report: Report) -> list[tuple[str, str]]:
    """Seed, draws, device and versions."""
    versions = ", ".join(f"{name} {_version(name)}" for name in VERSIONS)
    return [
        ("seed", str(report.plan.seed)),
        ("mask draws a row", str(report.options.draws)),
        ("device", report.options.device),
        ("versions", versions),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
