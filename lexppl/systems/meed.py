"""MEED: explanations by adversarial infidelity learning."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.func import grad
from torch.nn.functional import one_hot

from lexppl.argument_checks import finite_float, int_at_least, int_between
from lexppl.configured import Configured
from lexppl.effects import fit_progress
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.models.architectures.base import Architecture, architecture_of, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import ComplementImputer, ConstantImputer
from lexppl.models.lex import LEX
from lexppl.models.missing import NEVER, can_be_kept, possible_entries
from lexppl.models.penalties import Penalty
from lexppl.models.regimes import frozen
from lexppl.models.selectors import MaxConcreteSelector


class FadingPrior(Penalty):
    """`λ · mean_g |z̃_g − z_g| / (m + 1)` with `z̃ ∝ (z^m r)^{1/(m+1)}`, `r = softmax|∇ × input|`,
    m the epoch.

    Selection probabilities z are drawn to the attributions r of the explained model, later ever
    less (MEED, Liang et al. 2020, § 3.4). The released code takes the softmax of the negative
    attributions; this is the paper's.

    Args:
        weight: λ.
        model: the explained model, from x to a distribution of labels; a frozen copy is used.
        epochs: of the fit, which turn its progress into m.
        grouping: which features an entry stands for; their attributions add up.
        imputer: what hides features from the model, for attributions to what the mask keeps where x
            has no gradient, such as of word numbers; 0 if None.

    Raises:
        ValueError: a weight below 0, fewer than one epoch.

    Example:
        >>> import torch
        >>> from lexppl.distributions import MaxConcrete
        >>> from lexppl.models.predictor import table_predictor
        >>> prior = FadingPrior(1.0, table_predictor(3, 2, (8,)), epochs=10)
        >>> distribution = MaxConcrete(0.5, torch.zeros(4, 3), k=1)
        >>> cost = prior(distribution, distribution.rsample(), torch.zeros(4, 3))
        >>> bool((cost.abs() < 1e-6).all())
        True
    """

    reads_rows: ClassVar[bool] = True

    def __init__(
        self,
        weight: float,
        model: nn.Module,
        epochs: int,
        grouping: Grouping | None = None,
        imputer: nn.Module | None = None,
    ) -> None:
        super().__init__(weight)
        self.model = frozen(model)
        self.epochs = int_at_least("epochs", epochs)
        self.grouping = grouping
        self.imputer = imputer

    def forward(self, distribution: TorchDistribution, mask: Tensor, *rows: Tensor) -> Tensor:
        (x,) = rows
        m = int(fit_progress() * self.epochs)
        log_z = distribution.logits.log_softmax(-1)
        there = can_be_kept(distribution.logits)
        log_r = torch.where(there, self.attributions(x), NEVER).log_softmax(-1)
        target = ((m * log_z.detach() + log_r) / (m + 1)).softmax(-1)
        return self.weight * (target - log_z.exp()).abs().mean(-1) / (m + 1)

    def attributions(self, x: Tensor) -> Tensor:
        """`|∂ max_c log p(c | x̃) / ∂z|` at z = 1, `(B, G)`; `|∂/∂x · x|` where hidden features are
        0."""

        def certainty(rows: Tensor) -> Tensor:
            return self.model(rows).logits.log_softmax(-1).amax(-1).sum()

        x = x.detach()
        if self.imputer is None:
            size = (grad(certainty)(x) * x).abs()
        else:
            hide = self.imputer
            size = grad(lambda keep: certainty(hide(x, keep).rsample()))(torch.ones_like(x)).abs()
        return size if self.grouping is None else self.grouping.sums(size)


class OutputFeedback(Configured, nn.Module):
    """`network([x, p_m(· | x)])`, or `network(join(x, p_m))`: MEED's selector sees what it explains
    (Liang et al. 2020, § 3.1)."""

    def __init__(self, network: nn.Module, model: nn.Module, join: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network
        self.join = join
        self.model = frozen(model)

    def possible_entries(self, x: Tensor) -> Tensor | None:
        """Which entries a mask can keep, `(B, G)`, by the network; None for all."""
        return possible_entries(self.network, x)

    def forward(self, x: Tensor) -> Tensor:
        output = self.model(x).probs.detach()
        both = torch.cat([x.flatten(1), output], -1) if self.join is None else self.join(x, output)
        return self.network(both)


class FlippedTargets(Configured, PyroModule):
    """A program of the opposite targets: probabilities `(1 − p_c) / (C − 1)` of the labels."""

    def __init__(self, program: Any, classes: int) -> None:
        super().__init__()
        self.program = program
        self.classes = classes

    def forward(self, x: Tensor, y: Tensor) -> Any:
        p = y if y.dim() == 2 else one_hot(y, self.classes).to(x.dtype)
        return self.program(x, (1.0 - p) / (self.classes - 1))


def meed(
    features: int | Architecture,
    black_box: nn.Module,
    *,
    classes: int,
    k: int,
    temperature: float = 0.5,
    adversary: float = 1.0,
    output_feedback: bool = True,
    prior: float = 1.0,
    prior_epochs: int = 100,
    samples: int = 1,
    grouping: Grouping | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
) -> System:
    """MEED (Liang, Bai, Cao, Bai & Wang, "Adversarial infidelity learning for model
    interpretation", KDD 2020): what is selected should predict the model's output, what is left
    should not,

        A_s, E:  min E_v CE(p_m, A_s(x ⊙ v))                                   (eqs. 6 and 11)
        A_u:     min E_v CE(p_m, A_u(x ⊙ (1 − v)))                             (eqs. 7 and 12)
        E:       + w E_v CE(1 − p_m, A_u(x ⊙ (1 − v))) + fading prior          (eqs. 8 and 13)

    with v the largest of k Concrete draws whose logits see x and the model's output. The paper's
    ablations: `adversary=0`, `output_feedback=False`, `prior=0`.

    Deviations: the terms of one step draw masks of their own (the same expectation); for C classes
    the flipped target is `(1 − p) / (C − 1)`, the paper's for two.

    Args:
        features, grouping: as in :func:`lexppl.systems.lex`.
        black_box: the explained model, a module from x to a distribution of labels; frozen copies
            are used.
        classes: C.
        k: draws, the most entries that a mask keeps.
        temperature: τ.
        adversary: w; 1e-3 on MNIST, else 1.
        output_feedback: whether the selector sees the model's output.
        prior: weight of the fading prior.
        prior_epochs: epochs of the fit, by which the prior fades.
        samples: masks averaged a row and step.
        hidden, predictor_hidden: widths; (100, 100) and (200, 200) if None.

    Raises:
        ValueError: k outside 1 … G, fewer than two classes, a negative weight, τ ≤ 0.
        TypeError: a black box that is no module.

    Example:
        >>> from lexppl.models.predictor import table_predictor
        >>> explained = table_predictor(11, 2, (8,))
        >>> len(meed(11, explained, classes=2, k=4).build()[0].terms)
        3
    """
    usual = {"hidden": (100, 100), "predictor_hidden": (200, 200)}
    architecture = architecture_of(features, grouping, usual, hidden, predictor_hidden)
    entries = architecture.entries
    int_between("k", k, 1, entries, note="the mask entries")
    adversary = finite_float("adversary", adversary, least=0.0)
    if classes is None or classes < 2:
        raise ValueError(f"meed explains labels of at least 2 classes; classes is {classes!r}")
    if not isinstance(black_box, nn.Module):
        raise TypeError(
            "black_box must be a torch module from x to a distribution of labels; it is "
            f"{type(black_box).__name__}: fit one to its outputs first, as with "
            "lexppl.evaluation.fit_predictor"
        )

    def build() -> list[Stage]:
        if output_feedback:
            network, join = architecture.feedback(entries, classes)
            network = OutputFeedback(network, black_box, join)
        else:
            network = architecture.selector(entries)
        selector = MaxConcreteSelector(network, k, temperature)
        zero, groups = architecture.imputer(), architecture.grouping
        # Where what is hidden is 0 the gradient in x does, and costs less.
        hides = None if isinstance(zero, ConstantImputer) else zero
        fading = [FadingPrior(prior, black_box, prior_epochs, groups, hides)] if prior > 0.0 else []
        explainer = LEX(selector, zero, predictor_of(architecture, classes), fading, groups)
        objective = NestedIWAE(1, samples=samples, estimator=Pathwise())
        terms = [LossTerm(explainer, objective)]
        if adversary > 0.0:
            left = predictor_of(architecture, classes)
            rest = LEX(selector, ComplementImputer(zero), left, grouping=groups)
            flipped = FlippedTargets(rest, classes)
            terms.append(LossTerm(rest, objective, learns=[left]))
            terms.append(LossTerm(flipped, objective, learns=[selector], weight=adversary))
        return [Stage(terms)]

    return System(build)
