"""The report: everything that was found, in one page that needs no other file."""

import importlib.metadata
import math
import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.cli.figures import data_uri
from lexppl.cli.fitting import Plan
from lexppl.cli.judging import Judgement, ScoreRow, SizeCurve
from lexppl.cli.ranked import ranked_features
from lexppl.cli.report_template import TEMPLATE
from lexppl.cli.source import Parts, Source
from lexppl.cli.tables import score_cells, size_text
from lexppl.inference import FitResult
from lexppl.models import METHODS
from lexppl.models.imputers.by_name import HOLDING_ROWS, IMPUTERS
from lexppl.models.regimes import Regime
from lexppl.plots import (
    GREY,
    INK,
    plot_accuracy_by_size,
    plot_heatmap,
    plot_history,
    plot_importance,
)

SHOWN_ROWS = 50
"""Rows of the heat map."""
FIRST_FEATURES = 15
"""Features of the report's table that are seen at once."""
VERSIONS = ("lexppl", "torch", "pyro-ppl", "numpy", "scikit-learn", "arviz")


@dataclass(frozen=True, eq=False)
class Findings:
    """Everything that `lexppl explain` has found.

    Args:
        source: the data set.
        parts: its rows to fit on, to choose the best epoch on, and to judge.
        plan: how the explainer was fitted.
        result: the fit.
        posterior: the masks of held-out rows.
        ranking: of :func:`lexppl.explanation.selection_table`.
        judgement: held-out scores.
        explained: how many held-out rows the posterior has.
        warnings: what the reader should mind.
        command: the words that were typed.
        draws: mask draws a row.
        device: where it ran.
        black_box: the file of the black box, or None.
    """

    source: Source
    parts: Parts
    plan: Plan
    result: FitResult
    posterior: Posterior
    ranking: pd.DataFrame
    judgement: Judgement
    explained: int
    warnings: tuple[str, ...]
    command: tuple[str, ...]
    draws: int
    device: str
    black_box: str | None

    @property
    def mean_size(self) -> float:
        """Mean number of features that a row keeps."""
        stats = group_of(self.posterior, "sample_stats")
        return float(stats["selection_probability"].sum("feature").mean())

    def written(self) -> list[str]:
        """Names of what is written, the report first."""
        encoding = [] if self.source.data.encoding is None else ["encoding.json"]
        return ["report.html", "importance.csv", "posterior.nc", "explainer/", *encoding]

    def summary(self) -> list[str]:
        """What was done, in three lines."""
        data, plan = self.source.data, self.plan
        return [
            f"{data.name}: {len(data)} rows, {data.n_groups} features, target {_target(self)}",
            f"{len(self.parts.train)} rows to fit on, {len(self.parts.valid)} to choose the best "
            f"epoch on, {len(self.parts.test)} held out",
            f"{plan.method}: {_explained(self)}; keeps {plan.law}; {plan.imputer} imputation; "
            f"{_count(plan.replicates, 'replicate')} of {_count(plan.epochs, 'epoch')}; "
            f"seed {plan.seed}",
        ]


def write_report(findings: Findings, path: Path) -> None:
    """Write the report as one HTML file."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=False
    )
    page = environment.from_string(TEMPLATE).render(**report_context(findings))
    path.write_text(page, encoding="utf-8")


def report_context(findings: Findings) -> dict[str, Any]:
    """What the template speaks of."""
    data, curve = findings.source.data, findings.judgement.curve
    lines = _ranking_lines(findings.ranking)
    head, rows = score_cells(findings.judgement.scores)
    measure = _measure(findings)
    return {
        "version": importlib.metadata.version("lexppl"),
        "title": f"What predicts {data.target_name} in {data.name}",
        "subtitle": " · ".join(findings.summary()[1:]),
        "lead": _lead(findings),
        "facts": _facts(findings),
        "warnings": findings.warnings,
        "replicates": findings.plan.replicates,
        "first_features": lines[:FIRST_FEATURES],
        "more_features": lines[FIRST_FEATURES:],
        "reading": _reading(findings),
        "rows_caption": _rows_caption(findings),
        "scores": {"head": head, "rows": rows},
        "score_notes": _score_notes(findings),
        "sizes_alt": f"{measure} against the number of features kept",
        "sizes_caption": (
            ""
            if curve is None
            else f"EVAL-X's {measure} on {curve.rows} held-out rows where each row keeps only its "
            "k most probable features, against as many features chosen at random. A curve that "
            "rises early and stays above the random one says that the ranking puts first what "
            "there is to know. The dashed line is EVAL-X with every feature."
        ),
        "pictures": _pictures(findings),
        "command": shlex.join(findings.command),
        "settings": _settings(findings),
        "files": _files(findings),
        "snippet": _snippet(findings),
    }


def _pictures(findings: Findings) -> dict[str, str | None]:
    curve = findings.judgement.curve
    return {
        "importance": data_uri(plot_importance(findings.posterior)),
        "rows": data_uri(plot_heatmap(findings.posterior, rows=SHOWN_ROWS)),
        "sizes": None if curve is None else data_uri(_size_picture(curve, _measure(findings))),
        "history": data_uri(plot_history(findings.result.history)),
    }


def _size_picture(curve: SizeCurve, measure: str) -> Figure:
    """Accuracy against k with its controls: as many features chosen at random, and all of them."""
    figure = plot_accuracy_by_size(curve.sizes, curve.ranked)
    axes = figure.axes[0]
    axes.lines[0].set_label("most probable features first")
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


def _measure(findings: Findings) -> str:
    return "accuracy" if findings.source.data.task == "classification" else "R²"


def _ranking_lines(ranking: pd.DataFrame) -> list[dict[str, Any]]:
    lines = []
    for feature in ranked_features(ranking):
        known = not math.isnan(feature.lower)
        left = 100 * max(feature.lower, 0.0) if known else 0.0
        right = 100 * min(feature.upper, 1.0) if known else 0.0
        name, probability, interval, r_hat = feature.cells
        lines.append(
            {
                "name": name,
                "probability": probability,
                "interval": interval,
                "r_hat": r_hat,
                "width": f"{100 * feature.probability:.1f}",
                "left": f"{left:.1f}",
                "span": f"{right - left:.1f}" if known else None,
            }
        )
    return lines


def _score(findings: Findings, who: str) -> ScoreRow | None:
    return next((row for row in findings.judgement.scores if row.who.startswith(who)), None)


def _lead(findings: Findings) -> str:
    data = findings.source.data
    first = [str(name) for name in findings.ranking.index[:3]]
    size = f"{size_text(findings.mean_size)} of {data.n_groups} features"
    named = ", ".join(first[:-1]) + (" and " if len(first) > 1 else "") + first[-1]
    own = "the black box's output" if findings.plan.regime.post_hoc else data.target_name
    return f"To predict {own}, a row keeps {size} on average. Kept most often: {named}."


def _facts(findings: Findings) -> list[dict[str, str]]:
    data = findings.source.data
    facts = [
        {
            "value": f"{size_text(findings.mean_size)} of {data.n_groups}",
            "what": "features that a row keeps, on average",
        }
    ]
    name = "accuracy" if data.task == "classification" else "r2"
    for who, what in (
        ("the explainer", "explainer, from the features it keeps"),
        ("the black box", "black box, from all features"),
        ("a predictor", "predictor that sees everything"),
    ):
        row = _score(findings, who)
        if row is not None and name in row.figures:
            value = row.figures[name]
            text = f"{100 * value:.1f} %" if name == "accuracy" else f"R² {value:.2f}"
            facts.append({"value": text, "what": what})
    facts.append(
        {
            "value": f"{len(findings.parts.test)}",
            "what": f"held-out rows, of {len(data)}",
        }
    )
    return facts


def _objective(plan: Plan) -> str:
    if plan.method != "lex":
        return METHODS[plan.method].summary
    return (
        f"annealed nested bound, {_count(plan.masks, 'mask')} × "
        f"{_count(plan.imputations, 'imputation')}"
    )


def _reading(findings: Findings) -> list[str]:
    plan = findings.plan
    hidden = IMPUTERS[plan.imputer]
    first = (
        "For each row the explainer draws which features to keep, replaces the others with "
        f"{hidden}, and predicts from the result. It was fitted so that these predictions are as "
        f"good as they can be while each row keeps {plan.law}. A feature's probability is how "
        "often it is kept: near 1 the prediction needs it in almost every row, near 0 in almost "
        "none, and in between it matters in some rows (see the heat map), or it and another can "
        "stand in for each other."
    )
    second = (
        "A probability is about prediction, not about cause. Of two features that say the same, an "
        "explainer may keep either; a low probability does not mean that a feature is unrelated "
        "to the target."
    )
    if plan.replicates == 1:
        third = (
            "There is one replicate only, so nothing tells how far this explanation depends on "
            "the seed of the fit: run it again with --replicates 4."
        )
    else:
        third = (
            f"{plan.replicates} replicates of the explainer were fitted from different seeds, on "
            "the same rows. The interval shows how much the probability differs between them: it "
            "speaks of the fit, not of the sample of rows. r̂ compares the differences between "
            "replicates, row by row, with the spread of the draws within a replicate: near 1 (say "
            "below 1.1) the replicates keep the feature in the same rows; well above 1 they do "
            "not, and what is said of that feature depends on the initialisation. ∞ means that "
            "each replicate is sure and they contradict each other in some rows."
        )
    return [first, second, third]


def _rows_caption(findings: Findings) -> str:
    shown = min(SHOWN_ROWS, findings.explained)
    rows = f"{shown} held-out rows"
    if shown < len(findings.parts.test):
        rows = f"{shown} of the {len(findings.parts.test)} held-out rows"
    return (
        f"Each line is one of {rows}, by its number in the table, and its colour the probability "
        "that it keeps the feature, averaged over replicates. A column of one colour is a feature "
        "that matters everywhere or nowhere; a column that changes from row to row matters in some "
        "rows only."
    )


def _score_notes(findings: Findings) -> list[str]:
    notes = ["Means over replicates ± their standard deviation; log-likelihood in nats a row."]
    if _score(findings, "EVAL-X") is not None:
        notes.append(
            "An explainer that is trained together with its predictor could hide the answer in "
            "which features it keeps. EVAL-X is a judge against that: a predictor trained on "
            "random choices of features, which is then shown only what the explainer keeps. If the "
            "explainer scores much better than EVAL-X does on its features, do not trust it."
        )
    if findings.black_box is not None:
        notes.append("Scores are against the labels; the agreement is with the black box.")
    return notes


def _settings(findings: Findings) -> list[tuple[str, str]]:
    data, plan, result = findings.source.data, findings.plan, findings.result
    seconds = float(result.history.seconds.sum())
    settings = [
        ("data", f"{findings.source.given}: {len(data)} rows, {data.n_groups} features"),
        ("target", _target(findings)),
        (
            "rows",
            f"{len(findings.parts.train)} to fit on, {len(findings.parts.valid)} to choose "
            f"the best epoch on, {len(findings.parts.test)} held out",
        ),
        ("regime", f"{plan.regime.value}: {_explained(findings)}"),
        ("masks", f"keeps {plan.law}"),
        ("hidden features", f"{plan.imputer}: {IMPUTERS[plan.imputer]}"),
        (
            "networks",
            f"selector {_widths(plan.selector_hidden)}, "
            f"predictor {_widths(plan.predictor_hidden)}, ReLU",
        ),
        ("objective", _objective(plan)),
        (
            "fit",
            f"{_count(len(result.history), 'epoch')} of batches of {plan.batch_size}, Adam at "
            f"{plan.learning_rate:g}, weight decay {plan.weight_decay:g}; {seconds:.0f} s",
        ),
        ("best epochs", ", ".join(str(int(epoch) + 1) for epoch in result.best_epoch)),
        ("replicates", str(plan.replicates)),
        ("seed", str(plan.seed)),
        ("mask draws a row", str(findings.draws)),
        ("device", findings.device),
        ("versions", ", ".join(f"{name} {_version(name)}" for name in VERSIONS)),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
    ]
    if findings.black_box is not None:
        settings.insert(3, ("black box", findings.black_box))
    return settings


def _files(findings: Findings) -> list[tuple[str, str]]:
    meanings: Mapping[str, str] = {
        "importance.csv": "the ranked features, with intervals and r̂",
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


def _snippet(findings: Findings) -> str:
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


def _target(findings: Findings) -> str:
    data = findings.source.data
    if data.class_names is None:
        return f"{data.target_name!r} (a number)"
    names = [str(name) for name in data.class_names]
    shown = ", ".join(names[:6]) + (f" … {len(names)} classes" if len(names) > 6 else "")
    return f"{data.target_name!r} ({shown})"


def _explained(findings: Findings) -> str:
    return {
        Regime.FREE_IN_SITU: "explains the target",
        Regime.FIXED_IN_SITU: "explains the target, by a predictor fitted on all features before",
        Regime.SELF_POST_HOC: "explains what a predictor fitted on all features before says",
        Regime.SURROGATE_POST_HOC: "explains the black box",
    }[findings.plan.regime]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _widths(widths: Sequence[int]) -> str:
    return "–".join(str(width) for width in widths)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
