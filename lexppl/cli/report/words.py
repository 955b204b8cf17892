"""What the report says, in sentences."""

from collections.abc import Iterable

from lexppl.choices.imputers import hidden_by
from lexppl.choices.methods import METHODS
from lexppl.cli.judged.gains import JudgedGains
from lexppl.cli.judged.judging import ScoreRow
from lexppl.cli.options.plan_options import law_of
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.posterior_words import reading_of_posterior
from lexppl.explanation.layout.importance_kind import (
    ATTRIBUTION,
    PROBABILITY,
)

SHOWN_ROWS = 50
"""Rows of the heat map."""
NAMED = 5
"""Features that are named in a sentence."""


def gain_meaning(findings: ReportData, gains: JudgedGains) -> str:
    """What a gain is, in a few sentences."""
    folds = "" if findings.source.fold is None else " and folds"
    several = (gains.groups["members"] > 1).any()
    members = (
        " Features that depend on each other are one group; a member's gain is what it says beyond "
        "the rest of its group, so that members that repeat each other gain little."
    )
    return (
        f"Gain: how much worse {gains.predicted} is predicted without the group, in nats a row, "
        "from what the explainer keeps, by EVAL-X, a predictor of any choice of features. "
        f"Mean over {gains.rows} held-out rows, with intervals over rows{folds} of 90 % or more, "
        f"wide enough for all that is found.{members * bool(several)}"
    )


def what_is_found(gains: JudgedGains) -> str:
    """Which groups are not found, in a sentence or two."""
    lost = gains.lost
    if not lost:
        return f"At {gains.rate} every group is found to say something of its own."
    if len(lost) == len(gains.groups):
        return f"At {gains.rate} no group is found to say anything on held-out rows."
    more = len(lost) - NAMED
    names = f"{', '.join(lost[:NAMED])} and {more} more" if more > 0 else listed(lost)
    return f"Not found at {gains.rate}: {names}. Nothing shows that they are missed."


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names with commas, and a word before the last.

    Example:
        >>> listed(["a", "b", "c"]), listed(["a", "b"], "or"), listed(["a"]), listed([])
        ('a, b and c', 'a or b', 'a', '')
    """
    each = list(names)
    both = [", ".join(each[:-1]), each[-1]] if len(each) > 1 else each
    return f" {last} ".join(both)


def reading(findings: ReportData) -> list[str]:
    """How to read the ranking, a paragraph each."""
    plan, kind = findings.plan, findings.kind
    if kind is PROBABILITY:
        hidden = hidden_by(str(plan.imputer))
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
    gains = [] if findings.gains is None else [_reading_of_gains(findings, findings.gains)]
    return [first, *gains, second, _reading_of_replicates(findings)]


def _reading_of_gains(findings: ReportData, gains: JudgedGains) -> str:
    return (
        f"{gain_meaning(findings, gains)} No fit has seen these rows, so that a feature which only "
        "helps to remember the rows of the fit gains nothing here, however often it is kept. Found "
        "is what has an interval above 0: one-sided tests of the mean gain, given the fits, at "
        f"{gains.rate}."
    )


def _reading_of_replicates(findings: ReportData) -> str:
    plan, kind = findings.plan, findings.kind
    if plan.posterior is not None:
        return reading_of_posterior(findings)
    if plan.replicates == 1:
        return (
            "There is one replicate only, so nothing shows how far this explanation depends on "
            "the seed of the fit: run it again with --replicates 5."
        )
    interval = (
        f"{plan.replicates} replicates of the explainer were fitted from different seeds, on the "
        f"same rows. The interval shows how much the {kind.label} differs between them: it speaks "
        "of the fit, not of the sample of rows. "
    )
    if findings.source.fold is not None:
        interval = (
            f"The rows are in {plan.replicates} folds, and each of {plan.replicates} replicates of "
            "the explainer was fitted to all but one of them: a row is explained by the "
            f"replicate that has not seen it. The range is that of the {kind.label} of these fits: "
            "it is no interval for fits to other tables. "
        )
    if kind is PROBABILITY:
        return interval + (
            "The agreement compares the spread of the draws within a replicate with the "
            "differences between replicates, row by row: near 1 (say above .8) the replicates keep "
            "the feature in the same rows; well below they do not, and the explanation by that "
            "feature depends on the initialisation. 0 means that each replicate is sure and they "
            "contradict each other in some rows. Replicates that have learned nothing agree as "
            "well: see the held-out scores."
        )
    return interval + (
        "The agreement compares the spread of the draws within a replicate with the differences "
        "between replicates, row by row; where nothing is drawn, as the value is a function of the "
        "row, there is none."
    )


def measure(findings: ReportData) -> str:
    """By what predictions are judged, in a word."""
    return "accuracy" if findings.source.data.task == "classification" else "R²"


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
        "over replicates. Features stand as they are ranked above. A column of one colour is a "
        "feature that matters everywhere or nowhere; a column that changes from row to row matters "
        "in some rows only."
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
