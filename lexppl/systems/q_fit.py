"""Q-FIT: the importance of features as a Dirichlet posterior."""

import copy
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.distributions import kl_divergence

from lexppl.argument_checks import finite_float, int_at_least, one_of
from lexppl.configured import Configured
from lexppl.distributions import MaskDirichlet
from lexppl.effects import MASK_KIND, imputation_particles, mask_particles
from lexppl.inference import Geometric, LossTerm, NestedIWAE, Pathwise, PlugInMean, Stage, System
from lexppl.models.architectures.base import Architecture, architecture_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import ConstantImputer
from lexppl.models.lex import LEX, observe
from lexppl.models.penalties import KLPenalty
from lexppl.models.regimes import adapted_normalisation, frozen
from lexppl.models.selectors import DirichletSelector


def importance_divergence(alpha: Tensor, other: Tensor) -> Tensor:
    """`KL(Dir(α) ‖ Dir(α'))` of two models' explanations, by row, in nats: `(…, G)` to `(…,)`.

    The paper's forward divergence; its backward one is that of (α', α), as is here the Bregman
    divergence of the log-partition.

    Raises:
        ValueError: concentrations that are not positive, other sizes.

    Source: Adamczewski et al., § 4.3 (fairness and privacy).

    Example:
        >>> import torch
        >>> importance_divergence(torch.ones(3), torch.ones(3))
        tensor(0.)
    """
    for name, value in (("alpha", alpha), ("other", other)):
        if value.dim() < 1 or not bool((value > 0).all() and value.isfinite().all()):
            raise ValueError(f"{name} must hold positive concentrations, shape (…, G)")
    if alpha.shape[-1] != other.shape[-1]:
        raise ValueError(f"explanations differ: {alpha.shape[-1]} and {other.shape[-1]} entries")
    return kl_divergence(dist.Dirichlet(alpha), dist.Dirichlet(other))


START_RATE, END_RATE = 0.5, 1e-3
"""Adam's rate for the global posterior, in log α, which it carries to tens of thousands."""
SECOND_MOMENT = 0.95
"""Adam's β₂ there: the gradient shrinks as α grows, and a long memory would hold steps small."""

LOCAL_SAMPLES = 10  # Draws of f a row and step, where each row has its own

LEAST = 1e-4  # Of a concentration, as in :func:`lexppl.models.selectors.positive`


class GlobalImportance(Configured, PyroModule):
    """One importance for all rows: `f ~ Dir(α₀, …, α₀)`, `y_n ~ Φ(y | model(f ⊙ x_n))`.

    Sites: `importance` `(G,)`; `mask` `(L, B)` + `(G,)`; `x_imputed`; `y`. `kl_weight` multiplies
    the prior's and the guide's term.
    """

    def __init__(
        self,
        entries: int,
        predictor: nn.Module,
        concentration: float = 0.1,
        kl_weight: float = 1.0,
        imputer: nn.Module | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        self.entries = entries
        self.predictor = predictor
        self.concentration = finite_float("concentration", concentration, above=0.0)
        self.kl_weight = finite_float("kl_weight", kl_weight, above=0.0)
        self.imputer = ConstantImputer(0.0) if imputer is None else imputer
        self.grouping = grouping

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        prior = MaskDirichlet(x.new_full((self.entries,), self.concentration))
        with pyro.poutine.scale(scale=self.kl_weight):
            importance = pyro.sample("importance", prior)
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            # An estimator at the mean moves the importance itself.
            law = dist.Delta(importance.expand(len(x), -1), event_dim=1)
            mask = pyro.sample("mask", law, infer={MASK_KIND: "share"})
            keep = mask if self.grouping is None else self.grouping(mask)
            with imputation_particles():
                x_imputed = pyro.sample("x_imputed", self.imputer(x, keep))
                return observe("y", self.predictor(x_imputed), y)


class DirichletGuide(Configured, PyroModule):
    """The guide `q(f) = Dir(α)`, α = s · softmax(v), of a free total `s = e^c` and a free vector v,
    which an optimizer by coordinate needs apart: N rows bring s to the order of N."""

    def __init__(self, entries: int, point: bool = False, kl_weight: float = 1.0) -> None:
        super().__init__()
        self.entries = entries
        self.point = point
        self.kl_weight = finite_float("kl_weight", kl_weight, above=0.0)
        self.logits = nn.Parameter(torch.zeros(entries))
        self.log_total = nn.Parameter(torch.tensor(math.log(entries)))

    def reset_parameters(self) -> None:
        """Start from the uniform distribution again."""
        nn.init.zeros_(self.logits)
        nn.init.constant_(self.log_total, math.log(self.entries))

    @property
    def distribution(self) -> MaskDirichlet:
        """The guide's Dirichlet distribution of the shares, q(f)."""
        return MaskDirichlet(self.log_total.exp() * self.logits.softmax(-1) + LEAST)

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        infer: dict[str, Any] = {"closed_kl": True}
        if self.point:
            infer["estimator"] = PlugInMean()
        with pyro.poutine.scale(scale=self.kl_weight):
            pyro.sample("importance", self.distribution, infer=infer)


def q_fit(
    features: int | Architecture,
    black_box: nn.Module,
    *,
    scope: str = "local",
    point: bool = False,
    concentration: float = 0.1,
    kl_weight: float = 1.0,
    samples: int | None = None,
    adapt: str | None = None,
    grouping: Grouping | None = None,
    hidden: Sequence[int] | None = None,
) -> System:
    """Q-FIT (Adamczewski, Harder & Park, "Bayesian importance of features"): importances that scale
    the features of a given model and share out a unit among them,

        max_q Σ_n E_{f ~ q} log p_m(y_n | f ⊙ x_n) − w KL(q(f) ‖ Dir(α₀)),     w = 1,

    with `q(f) = Dir(α)` for all rows ("global"; a global latent, and one KL), or `q(f | x) =
    Dir(softplus(MLP(x)))` ("local"; a KL a row, in closed form). At a point estimate the
    expectation is taken at the mean `f̄ = α / Σα`.

    The global posterior is that of the training rows: `fit(q_fit(…, scope="global"), rows,
    valid=None)` has all of them. Its last state is kept, and it has a learning rate of its own
    unless `fit` is given one. Where features bear unlike information, no Dirichlet has the sd of
    each.

    `adapt="normalisation"` is the released code: the batch norms' statistics, γ and β go on
    learning on the scaled rows, all draws of a batch together. Its importances are **not of the
    model that was given**, against the paper's text; the paper's local figures are reached by it
    and not without (`benchmarks/q_fit.py`). The adapted model is the result's `model.predictor`.

    Deviations: none in the objective. The released code pools a batch into one Dirichlet in the
    local point estimate, weights the local KL by one over the batch and the global one by about
    1e-4/N, and adapts the given model's batch norms; here each row has its distribution, the KL has
    weight 1, and the model is frozen unless `adapt` says otherwise.

    Args:
        features: as in :func:`lexppl.systems.lex`.
        black_box: the given model, from `(…, B, *event)` to the distribution of y; a copy is used.
        scope: "local" or "global".
        point: at the mean, in place of draws.
        concentration: α₀; 0.1 or 0.01 in the paper.
        kl_weight: w > 0. At 1 a local q is the posterior given one label, which says little beside
            its prior; smaller weights give sharper importances that are no posterior.
        samples: draws of f averaged a step; None for 10 a row (local) or 1 (global).
        adapt: "normalisation", or None for the model as it is given.
        grouping: which features an entry scales.
        hidden: widths of the local network's hidden layers; (200, 200) if None.

    Raises:
        ValueError: another scope, a concentration or weight that is not positive; another `adapt`,
            or a model without batch norms.
        TypeError: a predictor that is no module.

    Example:
        >>> from lexppl.models.predictor import table_predictor
        >>> system = q_fit(3, table_predictor(3, 2, (8,)), scope="global")
        >>> type(system.build()[0].terms[0].guide).__name__
        'DirichletGuide'
    """
    architecture = architecture_of(features, grouping, {"hidden": (200, 200)}, hidden)
    entries = architecture.entries
    one_of(("local", "global"), "scope", scope)
    kl_weight = finite_float("kl_weight", kl_weight, above=0.0)
    one_of((None, "normalisation"), "adapt", adapt)
    hold = frozen if adapt is None else adapted_normalisation
    held = hold(black_box)
    usual = LOCAL_SAMPLES if scope == "local" else 1
    drawn = usual if samples is None else int_at_least("samples", samples)

    def build_global() -> list[Stage]:
        model = GlobalImportance(
            entries,
            copy.deepcopy(held),
            concentration,
            kl_weight,
            architecture.imputer(),
            architecture.grouping,
        )
        objective = NestedIWAE(1, estimator=Pathwise(), copies=1 if point else drawn)
        term = LossTerm(model, objective, DirichletGuide(entries, point, kl_weight))
        adam = partial(torch.optim.Adam, betas=(0.9, SECOND_MOMENT))
        return [Stage([term], None, adam, Geometric(START_RATE, END_RATE), keep="last")]

    def build_local() -> list[Stage]:
        model = LEX(
            DirichletSelector(architecture.selector(entries)),
            architecture.imputer(),
            copy.deepcopy(held),
            [KLPenalty(kl_weight, concentration)],
            architecture.grouping,
        )
        estimator = PlugInMean() if point else Pathwise()
        objective = NestedIWAE(1, samples=1 if point else drawn, estimator=estimator)
        return [Stage([LossTerm(model, objective)])]

    return System(build_local if scope == "local" else build_global)
