"""Sentences of the report."""

from lexppl.choices.imputers import hidden_by
from lexppl.choices.methods import METHODS
from lexppl.choices.settings import POINTS
from lexppl.cli.options.plan_options import law_of
from lexppl.cli.report.data import TableReport
from lexppl.cli.results.gains import JudgedGains
from lexppl.explanation.reading.masks import PROBABILITY
from lexppl.summary import counted


def reading(report: TableReport) -> list[str]:
    """How to read the ranking, a paragraph each."""
    plan, kind, gains = report.plan, report.kind, report.gains
    first = (
        f"{METHODS[plan.method].summary}. For each row the explainer {report.distribution}. "
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
    last = _of_replicates(report) if plan.posterior is None else _of_posterior(report)
    return [first, *of_gains, second, last]


def gain_meaning(gains: JudgedGains) -> str:
    """What a gain is, and which are found."""
    return (
        f"Gain: how much worse {gains.predicted} is predicted without the group, in nats a row, "
        "from what the explainer keeps, by EVAL-X, a predictor of any choice of features: the mean "
        f"over {gains.rows} rows that no fit has seen, so that what only helps to remember the "
        "rows of the fit gains nothing. Features that depend on each other are one group; a "
        "member's gain is what it says beyond the rest of its group. Found is what has an interval "
        f"above 0: one-sided tests of the mean gain, given the fits, at {gains.rate}."
    )


def _of_replicates(report: TableReport) -> str:
    plan, kind = report.plan, report.kind
    if plan.replicates == 1:
        return "There is one replicate only: run it again with --replicates 5."
    interval = (
        f"The interval shows how much the {kind.label} differs between {plan.replicates} "
        "replicates from different seeds: it speaks of the fit, not of the sample of rows. "
    )
    if report.source.fold is not None:
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


def _of_posterior(report: TableReport) -> str:
    plan, result = report.plan, report.result
    words = "" if plan.posterior is None else plan.posterior.words
    if _are_points(report):
        return (
            f"The explainer was fitted from several starts: {words}; {draws_text(report)}. The "
            f"interval beside the {report.kind.label} holds 95 % of these fits: how far they "
            "agree. It is no posterior, which the rows leave wider: ask nuts, sghmc or laplace for "
            "one."
        )
    first = (
        f"The explainer's weights have a posterior: {words}; {draws_text(report)}. The interval "
        f"beside the {report.kind.label} holds 95 % of its posterior, for these held-out rows: how "
        "sure the rows of the fit, and the prior, leave one of it. "
    )
    if isinstance(plan.penalty, float) and plan.penalty != 0.0:
        first += (
            "It is a Gibbs posterior (Bissiri, Holmes & Walker 2016): the penalty of "
            f"{plan.penalty:.3g} nats for each feature kept counts beside the rows' likelihood, "
            "and another penalty would give another posterior. "
        )
    if "r_hat" in report.ranking:
        known = result.sampler.summary if result.sampler is not None else None
        return first + (
            "r̂ compares the chains with each other: those that have converged to one posterior are "
            "below 1.01. It says nothing of whether anything was learned. "
            f"Of all weights: {known}."
        )
    if result.replicates > 1:
        return first + (
            "The posterior was fitted from several seeds, all of which are in the interval; the "
            "agreement says whether they keep the feature in the same rows."
        )
    return first


def consistency(report: TableReport) -> str:
    """Name of the ranking's last column."""
    return "r̂" if "r_hat" in report.ranking else "agreement"


def printed_interval(report: TableReport) -> str:
    """Meaning of the printed interval and last column, of a posterior."""
    if _are_points(report):
        return (
            f"interval over modes from several starts, {draws_text(report)}: how far fits agree, "
            "and no posterior, which is wider"
        )
    text = f"interval over the posterior of the weights, {draws_text(report)}"
    if "r_hat" in report.ranking:
        return f"{text}; r̂ of chains that have converged is below 1.01"
    if report.result.replicates > 1:
        return f"{text}; agreement of fits from different seeds near 1: they agree"
    return text


def _are_points(report: TableReport) -> bool:
    """Whether the draws are modes of the posterior."""
    posterior = report.plan.posterior
    return posterior is not None and posterior.inference in POINTS


def draws_text(report: TableReport) -> str:
    """Sampler or guide, and number of draws."""
    result = report.result
    if result.sampler is None:
        return f"by a guide, {counted(result.replicates, 'fit')}"
    count = result.guides[0].draws
    if result.sampler.are_chains:
        return f"by {result.sampler.name}, {counted(result.replicates, 'chain')} of {count} draws"
    return f"by {result.sampler.name}, {count} draws"
