"""The report: everything that was found, in one page that needs no other file."""

import importlib.metadata
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from lexppl.choices.imputers import HOLDING_ROWS, hidden_by
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import NETWORK
from lexppl.cli.gains import JudgedGains
from lexppl.cli.judging import SizeCurve
from lexppl.cli.report.figures import data_uri
from lexppl.cli.report.findings import ReportData, counted, explained_text, rows_text, target_text
from lexppl.cli.report.ranked import ranked_features, ranking_head
from lexppl.cli.report.template import TEMPLATE
from lexppl.cli.report.words import (
    SHOWN_ROWS,
    facts,
    lead,
    reading,
    rows_caption,
    score_notes,
    what_is_found,
)
from lexppl.cli.tables import score_cells
from lexppl.evaluation import PenaltyPath
from lexppl.evaluation.plateau import WITHIN
from lexppl.explanation.importance_kind import (
    PROBABILITY,
    ImportanceKind,
)
from lexppl.plots import (
    GREY,
    INK,
    plot_accuracy_by_size,
    plot_heatmap,
    plot_history,
    plot_importance,
    plot_penalty_path,
)
from lexppl.tabular.fit_plan import FitPlan

FIRST_FEATURES = 15
"""Features of the report's table that are seen at once."""
VERSIONS = ("lexppl", "torch", "pyro-ppl", "numpy", "scikit-learn", "arviz")


def write_report(findings: ReportData, path: Path) -> None:
    """Write the report as one HTML file."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False
    )
    page = environment.from_string(TEMPLATE).render(**report_context(findings))
    path.write_text(page, encoding="utf-8")


def report_context(findings: ReportData) -> dict[str, Any]:
    """What the template speaks of."""
    data, curve = findings.source.data, findings.judgement.curve
    lines = _ranking_lines(findings.ranking, findings.kind)
    head, rows = score_cells(findings.judgement.scores)
    measure = _measure(findings)
    return {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "subtitle": " · ".join(findings.summary()[1:]),
        "lead": lead(findings),
        "facts": facts(findings),
        "warnings": findings.warnings,
        "replicates": findings.plan.replicates,
        "kind": findings.kind,
        "first_features": lines[:FIRST_FEATURES],
        "ranking_head": ranking_head(findings.kind, findings.gains is not None)[1:],
        "ranking_note": None if findings.gains is None else _ranking_note(findings.gains),
        "more_features": lines[FIRST_FEATURES:],
        "reading": reading(findings),
        "rows_caption": rows_caption(findings),
        "scores": {"head": head, "rows": rows},
        "score_notes": score_notes(findings),
        "sizes_alt": f"{measure} against the number of features kept",
        "sizes_caption": (
            ""
            if curve is None
            else f"EVAL-X's {measure} on {curve.rows} held-out rows where each row keeps only its "
            "k most important features, against as many features chosen at random. A curve that "
            "rises early and stays above the random one says that the ranking puts first what "
            "there is to know. The dashed line is EVAL-X with every feature."
        ),
        "pictures": _pictures(findings),
        "path_caption": "" if findings.path is None else _path_caption(findings.path),
        "command": shlex.join(findings.command),
        "settings": _settings(findings),
        "files": _files(findings),
        "snippet": _snippet(findings),
    }


def _pictures(findings: ReportData) -> dict[str, str | None]:
    curve = findings.judgement.curve
    return {
        "importance": data_uri(plot_importance(findings.posterior)),
        "rows": data_uri(plot_heatmap(findings.posterior, rows=SHOWN_ROWS)),
        "sizes": None if curve is None else data_uri(_size_picture(curve, _measure(findings))),
        "history": data_uri(plot_history(findings.result.history)),
        "path": None if findings.path is None else data_uri(plot_penalty_path(findings.path.table)),
    }


def _size_picture(curve: SizeCurve, measure: str) -> Figure:
    """Accuracy against k with its controls: as many features chosen at random, and all of them."""
    figure = plot_accuracy_by_size(curve.sizes, curve.ranked)
    axes = figure.axes[0]
    axes.lines[0].set_label("most important features first")
    axes.plot(
        curve.sizes,
        curve.at_random,
        color=GREY,
        marker="s",
        markersize=4,
        linewidth=1.4,
        label="as many at random",
    )
    axes.axhline(
        curve.everything,
        color=INK,
        linestyle=(0, (5, 3)),
        linewidth=1.0,
        label=f"all features: {curve.everything:.3f}",
    )
    axes.set_xlabel("features kept in each row, k")
    axes.set_ylabel(f"{measure} of EVAL-X")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def _path_caption(path: PenaltyPath) -> str:
    return (
        f"Above, how many features a row keeps at each of {len(path.table)} penalties; below, the "
        "log-likelihood of the validation rows, in nats a row, with the standard error of its "
        f"distance to the best. Chosen (dashed) is λ = {path.penalty:.3g}: of the penalties "
        f"within {WITHIN:g} standard errors of the best that select, the usual one if it is among "
        "them, and else the one where the number kept changes least with the penalty."
    )


def _measure(findings: ReportData) -> str:
    return "accuracy" if findings.source.data.task == "classification" else "R²"


def _ranking_lines(ranking: pd.DataFrame, kind: ImportanceKind) -> list[dict[str, Any]]:
    every = ranked_features(ranking)
    ends = [value for f in every for value in (f.importance, f.upper) if not math.isnan(value)]
    # Probabilities are shown against 1; what has no natural end against the largest there is.
    most = 1.0 if kind is PROBABILITY else max(*ends, 1e-9)
    lines = []
    for feature in every:
        known = not math.isnan(feature.lower)
        lines.append(
            {
                "name": feature.name,
                "cells": feature.cells[1:],
                "lost": feature.gain is not None and not feature.gain.found,
                "width": f"{100 * feature.importance / most:.1f}",
                "left": f"{100 * feature.lower / most if known else 0.0:.1f}",
                "span": f"{100 * (feature.upper - feature.lower) / most:.1f}" if known else None,
            }
        )
    return lines


def _ranking_note(gains: JudgedGains) -> str:
    return (
        f"Ranked by gain, in nats a row. {what_is_found(gains)}"
        + " They stand in grey." * bool(gains.lost)
        + " The bars show the probability that a row keeps the feature."
    )


def _objective(plan: FitPlan) -> str:
    if not METHODS[plan.method].takes("imputations"):
        return METHODS[plan.method].summary
    return (
        f"annealed nested bound, {counted(plan.masks or 1, 'mask')} × "
        f"{counted(plan.imputations or 1, 'imputation')}"
    )


def _settings(findings: ReportData) -> list[tuple[str, str]]:
    data, plan, result = findings.source.data, findings.plan, findings.result
    seconds = float(result.history.seconds.sum())
    settings = [
        ("data", f"{findings.given}: {len(data)} rows, {data.n_entries} features"),
        ("target", target_text(findings)),
        ("rows", rows_text(findings)),
        ("regime", f"{plan.regime.value}: {explained_text(findings)}"),
        ("masks", findings.distribution),
        ("hidden features", f"{plan.imputer}: {hidden_by(str(plan.imputer))}"),
        (
            "networks",
            f"selector {_widths(plan.hidden)}, predictor {_widths(plan.predictor_hidden)}, ReLU"
            if plan.predictor_kind == NETWORK
            else f"selector {_widths(plan.hidden)}, ReLU",
        ),
        ("predictor", findings.predictor),
        ("objective", _objective(plan)),
        (
            "fit",
            f"{counted(len(result.history), 'epoch')} of batches of {plan.batch_size}, Adam at "
            f"{plan.learning_rate:g}, weight decay {plan.weight_decay:g}; {seconds:.0f} s",
        ),
        ("best epochs", ", ".join(str(int(epoch) + 1) for epoch in result.best_epoch)),
        ("replicates", str(plan.replicates)),
        ("fits of a bootstrap", str(plan.bootstrap or "none")),
        ("seed", str(plan.seed)),
        ("mask draws a row", str(findings.draws)),
        ("device", findings.device),
        ("versions", ", ".join(f"{name} {_version(name)}" for name in VERSIONS)),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]
    if isinstance(plan.penalty, float):
        chosen = ""
        if (path := findings.path) is not None:
            spent = float(path.fitted.history.seconds.sum())
            chosen = f", from the data; {len(path.table)} penalties in {spent:.0f} s"
        settings.insert(5, ("penalty", f"λ = {plan.penalty:.3g} nats{chosen}"))
    if findings.black_box is not None:
        settings.insert(3, ("black box", findings.black_box))
    return settings


def _files(findings: ReportData) -> list[tuple[str, str]]:
    meanings: Mapping[str, str] = {
        "importance.csv": "the ranked features, with intervals and agreement"
        + ("" if findings.gains is None else ", their gains and p-values"),
        "penalty_path.csv": "features kept and held-out log-likelihood at each penalty tried",
        "posterior.nc": f"{findings.draws} mask draws a row and replicate, for ArviZ",
        "explainer/": "the fitted model"
        + (
            f"; with the {findings.plan.imputer} imputer it holds rows of the training data"
            if findings.plan.imputer in HOLDING_ROWS
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
            lines[0].replace("import arviz", "import arviz, json, pandas"),
            "from lexppl.data import TableEncoding",
            "from lexppl.explanation import explain",
            *lines[1:],
            'encoding = TableEncoding.from_json(json.load(open("encoding.json")))',
            'x = encoding.encode(pandas.read_csv("new_rows.csv"))',
            "explain(explainer, x)",
        ]
    )


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
