"""MEED: explanations by adversarial infidelity learning."""

from collections.abc import Sequence
from typing import Any

from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.nn.functional import one_hot

from lexppl.argument_checks import finite_float
from lexppl.configured import Configured
from lexppl.inference import LossTerm, NestedIWAE, Pathwise, Stage, System
from lexppl.models.architectures import Architecture, architecture_of, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers import ComplementImputer, ConstantImputer
from lexppl.models.lex import LEX
from lexppl.models.selectors import MaxConcreteSelector
from lexppl.models.table_parts import check_size
from lexppl.systems.meed.fading_prior import FadingPrior
from lexppl.systems.meed.output_feedback import OutputFeedback


class FlippedTargets(Configured, PyroModule):
    """A program that is told the opposite: probabilities `(1 − p_c) / (C − 1)` of the labels.

    Args:
        program: called with x and the flipped probabilities.
        classes: C.

    Example:
        >>> import torch
        >>> flipped = FlippedTargets(lambda x, y: y, classes=2)
        >>> flipped(torch.zeros(1, 3), torch.tensor([[0.9, 0.1]]))
        tensor([[0.1000, 0.9000]])
    """

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

    with v the largest of k Concrete draws whose logits see x and the model's output. Every term is
    turned off by a number, as the paper's ablation does: `adversary=0`, `output_feedback=False`,
    `prior=0`.

    Deviations: the terms of one step draw masks of their own (the same expectation); for C classes
    the flipped target is `(1 − p) / (C − 1)`, the paper's for two.

    Args:
        features: D of a table, or an architecture, such as :func:`lexppl.models.images`.
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
        grouping: which features an entry keeps.
        hidden: widths of the selector's hidden layers; (100, 100) if None.
        predictor_hidden: widths of both predictors'; (200, 200) if None.

    Raises:
        ValueError: k outside 1 … G, fewer than two classes, a negative weight, τ ≤ 0.
        TypeError: a black box that is no module.

    Example:
        >>> from lexppl.models.table_parts import table_predictor
        >>> explained = table_predictor(11, 2, (8,))
        >>> len(meed(11, explained, classes=2, k=4).build()[0].terms)
        3
        >>> len(meed(11, explained, classes=2, k=4, adversary=0.0).build()[0].terms)
        1
    """
    architecture = architecture_of(
        features,
        grouping,
        {"hidden": hidden, "predictor_hidden": predictor_hidden},
        hidden=(100, 100),
        predictor_hidden=(200, 200),
    )
    entries = architecture.entries
    check_size(k, entries)
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
        zero = architecture.imputer()
        # Where what is hidden is 0 the gradient in x does, and costs less.
        hides = None if isinstance(zero, ConstantImputer) else zero
        fading = (
            [FadingPrior(prior, black_box, prior_epochs, architecture.grouping, hides)]
            if prior > 0.0
            else []
        )
        explainer = LEX(
            selector, zero, predictor_of(architecture, classes), fading, architecture.grouping
        )
        objective = NestedIWAE(1, samples=samples, estimator=Pathwise())
        terms = [LossTerm(explainer, objective)]
        if adversary > 0.0:
            left = predictor_of(architecture, classes)
            rest = LEX(selector, ComplementImputer(zero), left, grouping=architecture.grouping)
            terms += [
                LossTerm(rest, objective, learns=[left]),
                LossTerm(
                    FlippedTargets(rest, classes), objective, learns=[selector], weight=adversary
                ),
            ]
        return [Stage(terms)]

    return System(build)
