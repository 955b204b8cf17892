"""What the report says where the explainer's weights have a posterior."""

from lexppl.choices.posteriors import POINTS
from lexppl.cli.report.findings import ReportData
from lexppl.summary import counted


def consistency(findings: ReportData) -> str:
    """What the last column of the ranking is: r̂ of chains, or the agreement of fits."""
    return "r̂" if "r_hat" in findings.ranking else "agreement"


def printed_interval(findings: ReportData) -> str:
    """What interval and last column of the printed ranking are, of a posterior."""
    if are_points(findings):
        return (
            f"interval over modes from several starts, {draws_text(findings)}: how far fits agree, "
            "and no posterior, which is wider"
        )
    text = f"interval over the posterior of the weights, {draws_text(findings)}"
    if "r_hat" in findings.ranking:
        return f"{text}; r̂ of chains that have converged is below 1.01"
    if findings.result.replicates > 1:
        return f"{text}; agreement of fits from different seeds near 1: they agree"
    return text


def are_points(findings: ReportData) -> bool:
    """Whether what stands for the posterior's draws is modes of it."""
    posterior = findings.plan.posterior
    return posterior is not None and posterior.inference in POINTS


def draws_text(findings: ReportData) -> str:
    """By what, and how many."""
    result = findings.result
    if result.sampler is None:
        return f"by a guide, {counted(result.replicates, 'fit')}"
    count = result.guides[0].draws
    if result.sampler.are_chains:
        return f"by {result.sampler.name}, {counted(result.replicates, 'chain')} of {count} draws"
    return f"by {result.sampler.name}, {count} draws"


def _of_penalty(penalty: object) -> str:
    """That the penalty counts in the posterior, where there is one."""
    if not isinstance(penalty, float) or penalty == 0.0:
        return ""
    return (
        f"It is a Gibbs posterior (Bissiri, Holmes & Walker 2016): the penalty of {penalty:.3g} "
        "nats for each feature kept counts beside the rows' likelihood, and another penalty would "
        "give another posterior. "
    )


def reading_of_posterior(findings: ReportData) -> str:
    """How to read intervals and their last column, of a posterior."""
    plan, result = findings.plan, findings.result
    if plan.posterior is None:
        return ""
    if are_points(findings):
        return (
            f"The explainer was fitted from several starts: {plan.posterior.words}; "
            f"{draws_text(findings)}. The interval beside the {findings.kind.label} holds 95 % of "
            "these fits: how far they agree. It is no posterior, which the rows leave wider: ask "
            "nuts, sghmc or laplace for one."
        )
    first = (
        f"The explainer's weights have a posterior: {plan.posterior.words}; "
        f"{draws_text(findings)}. "
        f"The interval beside the {findings.kind.label} holds 95 % of its posterior, for these "
        "held-out rows: how sure the rows of the fit, and the prior, leave one of it. "
        f"{_of_penalty(plan.penalty)}"
    )
    if "r_hat" in findings.ranking:
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
