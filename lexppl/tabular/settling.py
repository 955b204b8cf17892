"""After the cross-fitted fit: masks go on where their predictors have stopped."""

from __future__ import annotations

from typing import Any

import torch

from lexppl.inference import LossTerm, NestedIWAE, Stage, System
from lexppl.inference.training.rows.row_fitted import FitsRows
from lexppl.models.lex import LEX

SHARE = 0.5
"""Of the epochs of the fit; with all of them 4 tables of 300 rows kept null columns in .28 of rows,
not in .37."""


def with_settling(system: System) -> System:
    r"""A cross-fitted explainer whose selector goes on, after the fit, with its predictors as they
    are.

    Predictors of few rows are best early, often while masks are still held near where they begin;
    what comes later is overfitted, and the best epoch keeps nearly everything in nearly every row.
    A second stage begins at that epoch and moves the selector alone,

        max_γ  Σ_n E_{q_γ}[log 1/(LK) Σ_{l,k} Φ(y_n | f_{θ_{f(n)}}(x̃_{n,l,k}))] − λ Σ_n E[‖z‖₀],

    with the predictor θ_{f(n)} that has not learned from the row, the whole penalty and no
    annealing, for half as many epochs; it ends with its best epoch by the same bound of the
    validation rows.

    Args:
        system: of one stage.

    Returns:
        the system with the second stage; as it was where it has more, where its predictors are not
        cross-fitted networks, or where nothing is paid for what is kept.

    Example:
        >>> from lexppl.systems import lex, vibi
        >>> len(with_settling(lex(3, classes=2)).build())
        2
        >>> vibi_alone = vibi(3, classes=2, k=1)
        >>> with_settling(vibi_alone) is vibi_alone
        True
    """
    if not _settles(system):
        return system

    def build() -> list[Stage]:
        (stage,) = system.build()
        (term,) = stage.terms
        model: Any = term.model
        selects = LossTerm(model, _without_schedules(term.objective), learns=[model.selector])
        return [stage, Stage([selects], optimizer=stage.optimizer, share=SHARE)]

    return System(build, system.published, system.folds)


def _settles(system: System) -> bool:
    with torch.random.fork_rng(devices=[]):
        stages = system.build()
    model: Any = stages[0].terms[0].model
    return (
        system.folds > 1
        and len(stages) == 1
        and len(stages[0].terms) == 1
        and type(stages[0].terms[0].objective) is NestedIWAE
        and isinstance(model, LEX)
        and len(model.penalties) > 0
        and not isinstance(model.predictor, FitsRows)
    )


def _without_schedules(bound: Any) -> NestedIWAE:
    return NestedIWAE(
        bound.masks,
        bound.imputations,
        samples=bound.samples,
        estimator=bound.estimator,
        copies=bound.copies,
    )
