"""How an explainer of a table is fitted: checked settings, and defaults by the number of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from lexppl.argument_checks import finite_float, int_between
from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.settings import (
    AUTO,
    NETWORK,
    TREES,
    AskedPosterior,
    Regime,
    check_settings,
    chooses_penalty,
    one_of,
    usual_imputer,
)
from lexppl.inference import Linear
from lexppl.inference.objective.objective import WarmUp
from lexppl.inference.training.settings import WEIGHT_DECAY

PENALTY = 0.02
"""Nats for each entry kept, of labels as frequent as each other, where nothing is given."""
FEW_ROWS = 2000
"""Fewer rows to fit on than this get small networks: large ones overfit at once."""
MANY_ROWS = 20_000
"""Fewer rows than this get small networks where one fit is of a range of penalties."""
STEPS = 2000
"""Most steps of one λ."""
EVERY_PENALTY_STEPS, MOST_EVERY_PENALTY_STEPS = 350, 3000
STEPS_ROWS, STEPS_ENTRIES = 1100, 30
"""Steps of a range of λ, fewest and most; they grow with √(N / STEPS_ROWS) and
(G / STEPS_ENTRIES)^2.5: 1,000 steps do not find a pattern that moves over 64 columns, and 2,600
do."""
MOST_EPOCHS = 200
LARGEST_BATCH, EVERY_PENALTY_BATCH = 500, 256
BATCHES_AN_EPOCH = 3
LEARNING_RATE, EVERY_PENALTY_RATE = 1e-3, 3e-3
DECAY_OF_ROWS, MOST_DECAY = 2.0, 0.01
"""Weight decay of a range of λ, over N, and at most: with 1e-3 predictors of 180 rows of noise lose
.1 nats a row to the base rate."""
PATH = (1 / 64, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0)
PATH_ENTRIES = 15
"""The λ of a path, as multiples of the usual one; one fit is of all from the first to the last. Of
G > PATH_ENTRIES columns, which share what they say, it begins at (PATH_ENTRIES / G)² of the
first."""
NOISE_BITS = 730
"""Below so many bits of the labels (N times those of a row) the usual λ is √(730 / bits) times as
large: the standard error of what a useless column gains grows so. Of 180 rows of two even labels,
and of 1,200 with 2 % positives, λ is doubled."""
SHARE_KEPT = 0.25
"""Of the entries, where a method keeps a given number and none is given."""


@dataclass(frozen=True)
class FitPlan:
    """Settings of a fit, defaults filled in; numbers are in nats.

    `conditional`: hidden features are drawn given the kept ones where columns depend. `rate_given`:
    the learning rate replaces the method's own optimizer. `penalty_given`: λ was stated. `unit`:
    :func:`lexppl.inference.entropy_unit` of y. `usual_penalty`: λ kept unless the rows speak
    against it. `penalties`: `(low, usual, high)` of a fit of a range of λ, None for one λ.
    `posterior`: of the weights; the selector is then linear.
    """

    method: str
    k: int | None
    penalty: float | Literal["auto"] | None
    imputer: str | nn.Module
    masks: int | None
    imputations: int | None
    folds: int | None
    hidden: tuple[int, ...]
    predictor_hidden: tuple[int, ...]
    epochs: int
    batch_size: int
    learning_rate: float
    rate_given: bool
    regime: Regime
    replicates: int
    seed: int
    weight_decay: float = WEIGHT_DECAY
    unit: float = 1.0
    usual_penalty: float = PENALTY
    penalties: tuple[float, float, float] | None = None
    predictor_kind: str = NETWORK
    posterior: AskedPosterior | None = None
    conditional: bool = False
    penalty_given: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the method's factory that the plan chooses."""
        alike = ("k", "masks", "imputations", "folds", "unit", "hidden")
        sampled = self.posterior is not None and self.posterior.inference is not None
        return {
            **{name: getattr(self, name) for name in alike},
            "penalty": self.penalties or (None if self.penalty == AUTO else self.penalty),
            "predictor_hidden": () if sampled else self.predictor_hidden,
        }

    @property
    def imputer_name(self) -> str:
        """Name of the imputer, or of its class."""
        return self.imputer if isinstance(self.imputer, str) else type(self.imputer).__name__

    @property
    def law(self) -> str:
        """Distribution of the masks, in words."""
        if self.k is not None:
            return f"exactly {self.k} of the features in each row"
        if self.penalty is None:
            return "all features of a row, each to a share of its own"
        return f"as many features as are worth {self.penalty:.3g} nats each"

    @property
    def path(self) -> tuple[float, ...]:
        """Candidate penalties of "auto", in nats."""
        lowest = () if self.penalties is None else self.penalties[:1]
        return tuple(sorted({*lowest, *(share * self.usual_penalty for share in PATH)}))

    @property
    def schedule(self) -> Linear | WarmUp:
        """Learning rate over the fit: constant then falling, with a warm-up for a range of
        penalties."""
        if self.penalties is None:
            return Linear(self.learning_rate, 0.05 * self.learning_rate, begin=0.5)
        return WarmUp(Linear(self.learning_rate, 0.01 * self.learning_rate, begin=0.7), 0.03)

    @property
    def training(self) -> dict[str, Any]:
        """The arguments of :func:`lexppl.inference.fit` that the plan chooses."""
        chosen = {n: getattr(self, n) for n in ("epochs", "batch_size", "weight_decay")}
        states_rate = self.rate_given or self.penalties is not None
        return {**chosen, "learning_rate": self.schedule if states_rate else None}

    @property
    def needs_full_predictor(self) -> bool:
        """Whether a predictor of all of x is fitted first, where no model is given."""
        return METHODS[self.method].explains_model or not self.regime.learns_predictor


def plan_for(
    rows: int,
    entries: int,
    method: str = DEFAULT_METHOD,
    *,
    regime: Regime = Regime.FREE_IN_SITU,
    unit: float = 1.0,
    posterior: AskedPosterior | None = None,
    one_penalty: bool = False,
    in_folds: bool = False,
    **settings: Any,
) -> FitPlan:
    """The plan of a fit to `rows` rows of G entries; settings that are None are chosen by the
    number of rows.

    Batches: a third of the rows, at most 500 (range of λ: 256). Epochs: at most 200 and 2000 steps
    (range of λ: 3000, and 350 √(N / 1100) (G / 30)^2.5, factors at least 1). `in_folds`: each
    replicate leaves one part in R of the rows out.
    """
    known, checked = METHODS[method], check_settings(method, **settings)
    k, penalty, imputer = (checked.get(name) for name in ("k", "penalty", "imputer"))
    every = k is None and penalty != 0 and chooses_penalty(method)
    every &= posterior is None and not one_penalty
    learned = rows - rows / checked.get("replicates", 1) * in_folds
    few = rows < FEW_ROWS or (every and learned < MANY_ROWS)
    kind = _predictor_kind(checked.pop("predictor", NETWORK), imputer, regime)
    usual = "gap" if kind == TREES else usual_imputer(known)
    if posterior is not None and posterior.inference is not None:
        # So that the likelihood is a finite sum over masks.
        usual = "constant"
    size = _batch_size(checked.pop("batch_size", None), rows, every)
    unit = finite_float("unit", unit, above=0.0) if known.takes("unit") else 1.0
    noisy = 1.0 if regime.post_hoc else max(1.0, math.sqrt(NOISE_BITS / (learned * unit)))
    usual_penalty = PENALTY * unit * noisy
    if penalty is None and k is None:
        penalty = PENALTY * unit if chooses_penalty(method) else known.default("penalty")
    decay = min(max(WEIGHT_DECAY, DECAY_OF_ROWS / learned), MOST_DECAY) if every else WEIGHT_DECAY
    values: dict[str, Any] = {
        "imputer": usual,
        **{name: known.default(name) for name in ("masks", "imputations", "folds")},
        "hidden": (64, 64) if few else (200, 200),
        "predictor_hidden": (64, 64) if few else (200, 200, 200),
        "epochs": known.epochs * _epochs(rows, entries, size, every),
        "learning_rate": EVERY_PENALTY_RATE if every else LEARNING_RATE,
        "replicates": 1,
        "seed": 0,
        **checked,
        "k": kept_entries(method, k, entries),
        "penalty": penalty,
    }
    if posterior is not None:
        values["hidden"] = ()
    return FitPlan(
        method=method,
        batch_size=size,
        rate_given="learning_rate" in checked,
        regime=regime,
        # Of F predictors a row's loss is 1/F of each one's: the same decay weighs F times as much.
        weight_decay=decay * unit * 2.0 / max(2, values["folds"] or 0),
        unit=unit,
        usual_penalty=usual_penalty,
        penalties=_range(usual_penalty, penalty, entries) if every else None,
        predictor_kind=kind,
        posterior=posterior,
        conditional=posterior is None and imputer is None and usual == "marginal",
        penalty_given=checked.get("penalty") is not None,
        **values,
    )


def _batch_size(asked: int | None, rows: int, every: bool) -> int:
    """Rows of a batch; one more where the last batch would have a single row, which batch norm
    refuses."""
    largest = EVERY_PENALTY_BATCH if every else LARGEST_BATCH
    size = min(asked or math.ceil(min(largest, rows / BATCHES_AN_EPOCH)), rows)
    while rows % size == 1 % size and size < rows:
        size += 1
    return size


def _epochs(rows: int, entries: int, size: int, every: bool) -> int:
    steps = STEPS
    if every:
        more = math.sqrt(max(1.0, rows / STEPS_ROWS)) * max(1.0, entries / STEPS_ENTRIES) ** 2.5
        steps = min(MOST_EVERY_PENALTY_STEPS, round(EVERY_PENALTY_STEPS * more))
    return max(1, min(MOST_EPOCHS, steps // math.ceil(rows / size)))


def check_method(method: Any, labels: bool) -> None:
    """Refuse an unknown method, or one of labels only for a real response."""
    one_of(list(METHODS), "method", method)
    if METHODS[method].labels_only and not labels:
        raise ValueError(
            f"{method} explains labels, and has no form for a real response: use another method, "
            "or a target of classes"
        )


def _predictor_kind(kind: str, imputer: Any, regime: Regime) -> str:
    """The kind of predictor; trees are refused with an imputer or a given predictor."""
    if kind == NETWORK:
        return NETWORK
    if not regime.learns_predictor:
        raise ValueError(
            f"predictor={kind!r} learns with the explainer, and in the regime {regime.value!r} "
            "the predictor is one that was fitted before: leave it out"
        )
    if imputer is not None:
        raise ValueError(
            "trees read hidden features as missing, and imputer= puts values in their place: leave "
            "one of the two out"
        )
    return kind


def kept_entries(method: str, k: int | None, entries: int) -> int | None:
    """k as given, or a quarter of the G entries rounded up for a method that needs one."""
    if k is None:
        return math.ceil(SHARE_KEPT * entries) if METHODS[method].needs("k") else None
    return int_between("k", k, 1, entries, note="the number of mask entries")


def _range(usual: float, penalty: Any, entries: int) -> tuple[float, float, float]:
    """Ends and middle of the range of λ, which includes a given λ."""
    asked = usual if penalty == AUTO else float(penalty)
    lowest = PATH[0] * usual * min(1.0, PATH_ENTRIES / entries) ** 2
    return min(lowest, asked), usual, max(PATH[-1] * usual, asked)
