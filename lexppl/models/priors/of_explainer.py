"""Priors for the networks of an explainer that a factory has just built."""

from collections.abc import Mapping
from typing import TypeVar

from torch import nn

from lexppl.models.priors.with_prior import Prior, chosen_priors, put_priors

PARTS = ("selector", "predictor")
"""The parts of an explainer with networks."""

Program = TypeVar("Program", bound=nn.Module)


def explainer_with_prior(
    program: Program, prior: Prior | None, parts: tuple[str, ...] = PARTS
) -> Program:
    """An explainer whose networks have priors, as :func:`with_prior`, but not a copy of it.

    Args:
        program: just built, and in no use yet.
        prior: of all weights of the parts that learn, or by part; None for none.
        parts: those that may have one.

    Raises:
        TypeError, ValueError: as :func:`with_prior`; a part that may have none.

    Example:
        >>> explainer_with_prior(nn.Linear(1, 1), None)
        Linear(in_features=1, out_features=1, bias=True)
    """
    if prior is None:
        return program
    if isinstance(prior, Mapping):
        others = sorted(name for name in prior if name.split(".")[0] not in parts)
        if others:
            raise ValueError(
                f"prior names {others}; the weights here that can have priors are those of "
                f"{list(parts)}"
            )
    else:
        learn = [
            name
            for name in parts
            if any(p.requires_grad for p in getattr(program, name).parameters())
        ]
        prior = dict.fromkeys(learn, prior)
    put_priors(program, chosen_priors(program, prior))
    return program
