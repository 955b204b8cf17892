"""What `lexppl explain` says of a posterior of the weights."""

import argparse
import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from lexppl.inference import NotSettledWarning
from lexppl.inference.posterior.convergence import SamplerWarning
from lexppl.summary import counted
from lexppl.tabular.fit_plan import FitPlan


def is_asked(options: argparse.Namespace) -> bool:
    """Whether a posterior of the weights was typed."""
    return options.inference is not None or options.guide is not None


def what_is_fitted(plan: FitPlan) -> str:
    """What begins, in a line."""
    if plan.posterior is not None and plan.posterior.inference is not None:
        return f"sampling the explainer: {plan.posterior.words}"
    first = "for all penalties at once, " if plan.penalties is not None else ""
    by = "" if plan.posterior is None else f", {plan.posterior.words}"
    return f"fitting the explainer, {first}{counted(plan.replicates, 'replicate')}{by}"


@contextlib.contextmanager
def warnings_of_posterior() -> Iterator[list[str]]:
    """Warnings of chains and of guides inside the block, which are for the report as well: they are
    kept, and others are shown as they come."""
    told: list[str] = []
    with warnings.catch_warnings():
        shown = warnings.showwarning
        for category in (SamplerWarning, NotSettledWarning):
            warnings.simplefilter("always", category)

        def keep(message: Any, category: Any, *where: Any) -> None:
            if issubclass(category, SamplerWarning | NotSettledWarning):
                told.append(" ".join(str(message).split()))
            else:
                shown(message, category, *where)

        setattr(warnings, "showwarning", keep)  # noqa: B010 - of fewer named arguments
        yield told
