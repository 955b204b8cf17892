"""The report: everything that was found, in one page that needs no other file."""

import importlib.metadata
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lexppl.choices.imputers import data_held_by, hidden_by
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK
from lexppl.cli.judged.encoded_choice import QUESTION
from lexppl.cli.report.bars import ranking_lines
from lexppl.cli.report.captions import (
    ranking_notes,
    single_note,
    sizes_caption,
    swarm_caption,
)
from lexppl.cli.report.dial import dial_chart, dial_data
from lexppl.cli.report.findings import ReportData, explained_text, rows_text, target_text
from lexppl.cli.report.first_screen import first_screen_of
from lexppl.cli.report.pictures import pictures
from lexppl.cli.report.posterior_words import consistency, draws_text
from lexppl.cli.report.ranked import INTERVAL, RANGE
from lexppl.cli.report.single_rows import row_block
from lexppl.cli.report.template import TABLE, rendered
from lexppl.cli.report.which_way import about, class_table, direction_cells
from lexppl.cli.report.words import (
    measure,
    reading,
    rows_caption,
    score_notes,
)
from lexppl.cli.tables import score_cells
from lexppl.evaluation.penalty_path import WITHIN, PenaltyPath
from lexppl.explanation.reading.sentences import html
from lexppl.summary import counted
from lexppl.tabular.fit_plan import FitPlan

FIRST_FEATURES = 15
"""Features of the report's table that are seen at once."""
VERSIONS = ("lexppl", "torch", "pyro-ppl", "numpy", "scikit-learn", "arviz")


def write_report(findings: ReportData, path: Path) -> None:
    """Write the report as one HTML file."""
    page = rendered(*TABLE, **report_context(findings))
    path.write_text(page, encoding="utf-8")


def report_context(findings: ReportData) -> dict[str, Any]:
    """What the template speaks of."""
    data, curve, path = findings.source.data, findings.judgement.curve, findings.path
    groups = None if findings.gains is None else findings.gains.groups
    lines = ranking_lines(findings.ranking, groups, findings.kind, direction_cells(findings))
    head, rows = score_cells(findings.judgement.scores)
    figure = measure(findings)
    return {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "subtitle": findings.summary()[0],
        "answers": [(q, html(answer)) for q, answer in first_screen_of(findings).answers()],
        "dial": dial_data(findings),
        "dial_chart": path and dial_chart(path, findings.source.target_scale),
        "labels": data.class_names is not None,
        "warnings": findings.warnings,
        "replicates": findings.plan.replicates,
        "kind": findings.kind,
        "consistency": consistency(findings),
        "span": RANGE if findings.source.fold is not None else INTERVAL,
        "gains": findings.gains is not None,
        "about": about(findings) if findings.closer.directions is not None else None,
        "first_features": lines[:FIRST_FEATURES],
        "more_features": lines[FIRST_FEATURES:],
        "ranking_notes": ranking_notes(findings),
        "classes": class_table(findings),
        "swarm_caption": swarm_caption(findings),
        "single_rows": [row_block(row) for row in findings.closer.rows],
        "single_note": single_note(findings),
        "reading": reading(findings),
        "question": QUESTION,
        "choice": findings.choice.answer(),
        "rows_caption": rows_caption(findings),
        "scores": {"head": head, "rows": [with_spreads(line) for line in rows]},
        "score_notes": score_notes(findings),
        "sizes_caption": "" if curve is None else sizes_caption(curve, figure),
        "pictures": pictures(findings),
        "path_caption": path and _path_caption(path),
        "command": shlex.join(findings.command),
        "settings": _settings(findings),
        "files": _files(findings),
        "snippet": _snippet(findings),
    }


def with_spreads(line: list[str]) -> list[Any]:
    """Figures apart from their spread, for which a narrow page has no room."""
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


def _fit(findings: ReportData) -> str:
    plan, history = findings.plan, findings.result.history
    return (
        f"{counted(len(history), 'epoch')} of batches of {plan.batch_size}, Adam at "
        f"{_rate(plan)}, weight decay {plan.weight_decay:g}; {float(history.seconds.sum()):.0f} s"
    )


def _settings(findings: ReportData) -> list[tuple[str, str]]:
    data, plan, result = findings.source.data, findings.plan, findings.result
    settings = [
        ("data", f"{findings.given}: {len(data)} rows, {data.n_entries} features"),
        ("target", target_text(findings)),
        ("rows", rows_text(findings, "rows to fit on")),
        ("regime", f"{plan.regime.value}: {explained_text(findings)}"),
        ("masks", findings.distribution),
        ("hidden features", f"{plan.imputer}: {hidden_by(str(plan.imputer))}"),
        (
            "networks",
            f"selector {_widths(plan.hidden)}, predictor {_widths(plan.own_predictor_hidden)}, ReLU"
            if plan.predictor_kind == NETWORK
            else f"selector {_widths(plan.hidden)}, ReLU",
        ),
        ("predictor", findings.predictor),
        ("objective", objective(plan)),
        (
            "fit",
            draws_text(findings) if result.sampler is not None else _fit(findings),
        ),
        (
            "epoch kept",
            "the last"
            if plan.penalties
            else ", ".join(str(int(epoch) + 1) for epoch in result.best_epoch),
        )
        if result.sampler is None
        else ("posterior", result.sampler.summary or "independent draws"),
        ("chains" if result.sampler else "replicates", str(plan.replicates)),
        ("seed", str(plan.seed)),
        ("mask draws a row", str(findings.draws)),
        ("device", findings.device),
        *versions(),
    ]
    if plan.posterior is not None:
        settings.insert(5, ("weights", plan.posterior.words))
    if isinstance(plan.penalty, float):
        chosen = ""
        if (path := findings.path) is not None:
            low, high = path.fitted.penalty_range
            chosen = f", from the data; one fit of all from {low:.2g} to {high:.2g}"
        settings.insert(5, ("penalty", f"λ = {plan.penalty:.3g} nats{chosen}"))
    if findings.black_box is not None:
        settings.insert(3, ("black box", f"{findings.black_box}: {findings.calls}"))
    return settings


def _files(findings: ReportData) -> list[tuple[str, str]]:
    meanings: Mapping[str, str] = {
        "groups.csv": "the ranked groups, with intervals, agreement, gains and p-values",
        "importance.csv": "the ranked features, with intervals and agreement"
        + ("" if findings.gains is None else ", their groups, gains and p-values"),
        "directions.csv": "which way each feature moves the prediction, by class and level",
        "rows.csv": "the rows of this page, feature by feature",
        "penalty_path.csv": "features kept and held-out log-likelihood at each penalty tried",
        "posterior.nc": f"{findings.draws} mask draws a row and replicate, given the row alone "
        "(prior) and its response too (posterior), for ArviZ; with the rows' log-likelihood, their "
        "values, and their gains where they are known",
        "explainer/": "the fitted model"
        + (
            f"; with the {findings.plan.imputer} imputer it holds {held}"
            if (held := data_held_by(str(findings.plan.imputer)))
            else ""
        ),
        "encoding.json": "how the table's columns became features",
    }
    return [(name, meanings[name]) for name in findings.written() if name in meanings]


def _snippet(findings: ReportData) -> str:
    lines = [
        "import arviz, lexppl",
        "",
        'posterior = arviz.from_netcdf("posterior.nc")',
        'arviz.summary(posterior, var_names=["importance"])',
        "",
        'explainer = lexppl.load("explainer")',
    ]
    if findings.source.data.encoding is None:
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


def _rate(plan: FitPlan) -> str:
    own = None if plan.rate_given else METHODS[plan.method].own_rate
    return f"{plan.learning_rate:g}" if own is None else own


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)


def versions() -> list[tuple[str, str]]:
    """What it was run by."""
    return [
        ("versions", ", ".join(f"{name} {_version(name)}" for name in VERSIONS)),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
