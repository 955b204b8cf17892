"""What the report says, in sentences."""

from lexppl.cli.judging import ScoreRow
from lexppl.cli.options.plan_options import law_of
from lexppl.cli.report.findings import ReportData
from lexppl.cli.tables import size_text
from lexppl.explanation.importance_kind import (
    ATTRIBUTION,
    PROBABILITY,
    ImportanceKind,
)
from lexppl.models.imputers.by_name import IMPUTERS
from lexppl.systems import METHODS

SHOWN_ROWS = 50
"""Rows of the heat map."""


def lead(findings: ReportData) -> str:
    """What was found, in a sentence or two."""
    data = findings.source.data
    first = [str(name) for name in findings.ranking.index[:3]]
    named = ", ".join(first[:-1]) + (" and " if len(first) > 1 else "") + first[-1]
    own = "the black box's output" if findings.plan.regime.post_hoc else data.target_name
    if findings.kind is not PROBABILITY:
        return f"What matters most to predict {own}, by the {findings.kind.label}: {named}."
    size = f"{size_text(findings.mean_size)} of {data.n_entries} features"
    return f"To predict {own}, a row keeps {size} on average. Kept most often: {named}."


def facts(findings: ReportData) -> list[dict[str, str]]:
    """Figures for the head of the page."""
    data = findings.source.data
    facts = []
    if findings.kind is PROBABILITY:
        size = f"{size_text(findings.mean_size)} of {data.n_entries}"
        facts.append({"value": size, "what": "features that a row keeps, on average"})
    name = "accuracy" if data.task == "classification" else "r2"
    for who, what in (
        ("the explainer", _what_it_sees(findings.kind)),
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
            "value": f"{len(findings.source.test_rows)}",
            "what": f"held-out rows, of {len(data)}",
        }
    )
    return facts


def _what_it_sees(kind: ImportanceKind) -> str:
    return "explainer, from the features it keeps" if kind is PROBABILITY else "explainer"


def reading(findings: ReportData) -> list[str]:
    """How to read the ranking, in three paragraphs."""
    plan, kind = findings.plan, findings.kind
    if kind is PROBABILITY:
        hidden = IMPUTERS[str(plan.imputer)]
        first = (
            "For each row the explainer draws which features to keep, replaces the others with "
            f"{hidden}, and predicts from the result. It was fitted so that these predictions are "
            f"as good as they can be while each row keeps {law_of(plan)}. A feature's probability "
            "is how often it is kept: near 1 the prediction needs it in almost every row, near 0 "
            "in almost none, and in between it matters in some rows (see the heat map), or it and "
            "another can stand in for each other."
        )
    else:
        first = (
            f"{METHODS[plan.method].summary}. For each row the explainer {findings.distribution}. "
            f"What is ranked is {kind.meaning}, averaged over rows."
        )
    second = (
        "This is about prediction, not about cause. Of two features that say the same, an "
        "explainer may take either; a low value does not mean that a feature is unrelated to the "
        "target."
    )
    return [first, second, _reading_of_replicates(findings)]


def _reading_of_replicates(findings: ReportData) -> str:
    plan, kind = findings.plan, findings.kind
    if plan.replicates == 1:
        return (
            "There is one replicate only, so nothing tells how far this explanation depends on "
            "the seed of the fit: run it again with --replicates 4."
        )
    interval = (
        f"{plan.replicates} replicates of the explainer were fitted from different seeds, on the "
        f"same rows. The interval shows how much the {kind.label} differs between them: it speaks "
        "of the fit, not of the sample of rows. "
    )
    if kind is PROBABILITY:
        return interval + (
            "The agreement compares the spread of the draws within a replicate with the "
            "differences between replicates, row by row: near 1 (say above .8) the replicates keep "
            "the feature in the same rows; well below they do not, and what is said of that "
            "feature depends on the initialisation. 0 means that each replicate is sure and they "
            "contradict each other in some rows. Replicates that have learned nothing agree as "
            "well: see the held-out scores."
        )
    return interval + (
        "The agreement compares the spread of the draws within a replicate with the differences "
        "between replicates, row by row; where nothing is drawn, as the value is a function of the "
        "row, there is none."
    )


def rows_caption(findings: ReportData) -> str:
    """What the heat map shows."""
    shown = min(SHOWN_ROWS, findings.explained)
    rows = f"{shown} held-out rows"
    if shown < len(findings.source.test_rows):
        rows = f"{shown} of the {len(findings.source.test_rows)} held-out rows"
    signed = findings.kind is ATTRIBUTION
    what = "the feature's contribution, with its sign" if signed else findings.kind.meaning
    return (
        f"Each line is one of {rows}, by its number in the table, and its colour {what}, averaged "
        "over replicates. A column of one colour is a feature that matters everywhere or nowhere; "
        "a column that changes from row to row matters in some rows only."
    )


def score_notes(findings: ReportData) -> list[str]:
    """What to know of the scores."""
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


def _score(findings: ReportData, who: str) -> ScoreRow | None:
    return next((row for row in findings.judgement.scores if row.who.startswith(who)), None)
