"""What the report says, in sentences."""

from lexppl.choices.imputers import hidden_by
from lexppl.choices.methods import METHODS
from lexppl.cli.judged.gains import JudgedGains
from lexppl.cli.judged.judging import ScoreRow
from lexppl.cli.options.plan_options import law_of
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.posterior_words import reading_of_posterior
from lexppl.explanation.reading.masks import ATTRIBUTION, PROBABILITY

SHOWN_ROWS = 50
"""Rows of the heat map."""


def reading(findings: ReportData) -> list[str]:
    """How to read the ranking, a paragraph each."""
    plan, kind, gains = findings.plan, findings.kind, findings.gains
    first = (
        f"{METHODS[plan.method].summary}. For each row the explainer {findings.distribution}. "
        f"What is ranked is {kind.meaning}, averaged over rows."
    )
    if kind is PROBABILITY:
        first = (
            "For each row the explainer draws which features to keep, replaces the others with "
            f"{hidden_by(str(plan.imputer))}, and predicts from the result. It was fitted to "
            f"predict as well as it can while each row keeps {law_of(plan)}. A feature's "
            "probability is how often it is kept: in between 0 and 1 it matters in some rows (see "
            "the heat map), or it and another can stand in for each other."
        )
    second = (
        "This is about prediction, not about cause. Of two features that say the same, an "
        "explainer may take either; a low value does not mean that a feature is unrelated to the "
        "target."
    )
    of_gains = [] if gains is None else [gain_meaning(gains)]
    return [first, *of_gains, second, _reading_of_replicates(findings)]


def gain_meaning(gains: JudgedGains) -> str:
    """What a gain is, and what is found."""
    return (
        f"Gain: how much worse {gains.predicted} is predicted without the group, in nats a row, "
        "from what the explainer keeps, by EVAL-X, a predictor of any choice of features: the mean "
        f"over {gains.rows} rows that no fit has seen, so that what only helps to remember the "
        "rows of the fit gains nothing. Features that depend on each other are one group; a "
        "member's gain is what it says beyond the rest of its group. Found is what has an interval "
        f"above 0: one-sided tests of the mean gain, given the fits, at {gains.rate}."
    )


def _reading_of_replicates(findings: ReportData) -> str:
    plan, kind = findings.plan, findings.kind
    if plan.posterior is not None:
        return reading_of_posterior(findings)
    if plan.replicates == 1:
        return "There is one replicate only: run it again with --replicates 5."
    interval = (
        f"The interval shows how much the {kind.label} differs between {plan.replicates} "
        "replicates from different seeds: it speaks of the fit, not of the sample of rows. "
    )
    if findings.source.fold is not None:
        interval = (
            f"Each of {plan.replicates} replicates was fitted to all but one of as many folds of "
            "the rows, and explains the rows that it has not seen. The range is that "
            f"of the {kind.label} of these fits: it is no interval for fits to other tables. "
        )
    return interval + (
        "The agreement compares the spread of the draws within a replicate with the differences "
        "between replicates, row by row: near 1 (say above .8) they keep the feature in the same "
        "rows, near 0 each is sure, and they contradict each other. Replicates that have learned "
        "nothing agree as well: see the held-out scores."
    )


def measure(findings: ReportData) -> str:
    """By what predictions are judged, in a word."""
    return "accuracy" if findings.source.data.task == "classification" else "R²"


def rows_caption(findings: ReportData) -> str:
    """What the heat map shows."""
    shown = min(SHOWN_ROWS, findings.explained)
    signed = findings.kind is ATTRIBUTION
    what = "the feature's contribution, with its sign" if signed else findings.kind.meaning
    return (
        f"Each line is one of {shown} held-out rows, by its number in the table, and its colour "
        f"{what}, from none (0) to dark, mean over replicates. A column of one colour is a feature "
        "that matters everywhere or nowhere; one that changes from row to row matters in some."
    )


def score_notes(findings: ReportData) -> list[str]:
    """What to know of the scores."""
    classes = findings.source.data.class_names
    judged = _score(findings, "EVAL-X") is not None
    notes = notes_on_scores(0 if classes is None else len(classes), judged)
    if findings.black_box is not None:
        notes.append("Scores are against the labels; the agreement is with the black box.")
    return notes


def notes_on_scores(classes: int, judged: bool, features: str = "features") -> list[str]:
    """What to know of scores.

    Args:
        classes: how many there are; 0 for a response.
        judged: whether EVAL-X is among them.
        features: what the entries of a mask are.
    """
    notes = [
        "Means over replicates, of rows in folds each on its own fold, ± their standard deviation; "
        "log-likelihood in nats a row."
    ]
    if classes:
        of = "of the rarer class" if classes == 2 else "mean over the classes"
        notes[0] += (
            f" Average precision (avg precision): {of}; the base rate, which knows nothing of a "
            "row, has the class's share of the rows."
        )
    if judged:
        notes.append(
            "An explainer that is trained together with its predictor could hide the answer in "
            f"which {features} it keeps. EVAL-X is a judge against that: a predictor trained on "
            f"random choices of {features}, which is then shown only what the explainer keeps. If "
            f"the explainer scores much better than EVAL-X does on its {features}, do not trust it."
        )
    return notes


def _score(findings: ReportData, who: str) -> ScoreRow | None:
    return next((row for row in findings.judgement.scores if row.who.startswith(who)), None)
