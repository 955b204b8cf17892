"""The report of a table as one HTML page, and what the pages of all kinds share."""

import importlib.metadata
import platform
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from lexppl.choices.imputers import hidden_by
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK
from lexppl.cli.report.charts import pictures
from lexppl.cli.report.data import Report, TableReport
from lexppl.cli.report.dial import dial_chart, dial_data
from lexppl.cli.report.first_screen import first_screen_of
from lexppl.cli.report.ranking import (
    INTERVAL,
    RANGE,
    class_table,
    direction_target,
    ranking_bars,
)
from lexppl.cli.report.words import (
    consistency,
    draws_text,
    measure,
    ranking_notes,
    reading,
    rows_caption,
    score_notes,
    single_note,
    sizes_caption,
    swarm_caption,
)
from lexppl.cli.results.encoded_choice import QUESTION
from lexppl.cli.results.scores import score_cells
from lexppl.cli.results.single_rows import row_block
from lexppl.evaluation.penalty_path import WITHIN, PenaltyPath
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
FIRST_FEATURES = 15
"""Features of the ranking that are seen at once."""
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


def shared_context(report: Report, entries: str) -> dict[str, Any]:
    """Context of the templates that pages of all kinds share."""
    data = report.source.data
    head, rows = score_cells(report.judgement.scores, entries)
    return {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "warnings": report.warnings,
        "scores": {"head": head, "rows": [_with_spreads(line) for line in rows]},
        "command": shlex.join(report.command),
        "files": [(name, meaning) for name, meaning in report.files().items() if meaning],
    }


def _context(report: TableReport) -> dict[str, Any]:
    data, curve, path = report.source.data, report.judgement.curve, report.path
    bars = ranking_bars(report)
    return {
        **shared_context(report, "features"),
        "subtitle": report.summary()[0],
        "answers": [(q, html(answer)) for q, answer in first_screen_of(report).answers()],
        "dial": dial_data(report),
        "dial_chart": path and dial_chart(path, report.source.target_scale),
        "labels": data.class_names is not None,
        "replicates": report.plan.replicates,
        "kind": report.kind,
        "consistency": consistency(report),
        "span": RANGE if report.source.fold is not None else INTERVAL,
        "gains": report.gains is not None,
        "about": direction_target(report) if report.details.directions is not None else None,
        "first_features": bars[:FIRST_FEATURES],
        "more_features": bars[FIRST_FEATURES:],
        "ranking_notes": ranking_notes(report),
        "classes": class_table(report),
        "swarm_caption": swarm_caption(report),
        "single_rows": [row_block(row) for row in report.details.rows],
        "single_note": single_note(report),
        "reading": reading(report),
        "question": QUESTION,
        "choice": report.choice.answer(),
        "rows_caption": rows_caption(report),
        "score_notes": score_notes(report),
        "sizes_caption": "" if curve is None else sizes_caption(curve, measure(report)),
        "pictures": pictures(report),
        "path_caption": path and _path_caption(path),
        "settings": _settings(report),
        "snippet": _snippet(report),
    }


def _with_spreads(line: list[str]) -> list[Any]:
    """Figures apart from their spread, which a narrow page hides."""
    figures = [cell.replace("-", "−").partition(" ± ") for cell in line[1:]]
    return [line[0], *({"value": value, "spread": spread} for value, _, spread in figures)]


def _path_caption(path: PenaltyPath) -> str:
    return (
        f"Log-likelihood of held-out rows at {len(path.table)} penalties, in nats a row, with the "
        f"standard error of its distance to the best. In use is λ = {path.penalty:.3g}: of those "
        f"within {WITHIN:g} standard errors of the best the usual one, or else the one where the "
        "number kept changes least; one that keeps nothing only where none is better by more than "
        "a standard error."
    )


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
        settings.insert(3, ("black box", black_box))
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


def _snippet(report: TableReport) -> str:
    lines = [
        "import arviz, lexppl",
        "",
        'posterior = arviz.from_netcdf("posterior.nc")',
        'arviz.summary(posterior, var_names=["importance"])',
        "",
        'explainer = lexppl.load("explainer")',
    ]
    if report.source.data.encoding is None:
        return "\n".join(lines)
    return "\n".join(
        [
            lines[0].replace("import arviz", "import arviz, pandas"),
            "from lexppl.data import TableEncoding",
            "from lexppl.explanation import explain",
            *lines[1:],
            'encoding = TableEncoding.load("encoding.json")',
            'x = encoding.encode(pandas.read_csv("new_rows.csv"))',
            "posterior = explain(explainer, x)",
            "",
            "from lexppl.evaluation import revealed_predictions",
            "from lexppl.plots import plot_row",
            "plot_row(revealed_predictions(explainer, x).steps(0))",
        ]
    )


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
