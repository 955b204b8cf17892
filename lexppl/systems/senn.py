"""SENN: a network that is linear in its features, with coefficients that vary slowly."""

from collections.abc import Sequence
from math import prod

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn
from torch.func import jacrev

from lexppl.argument_checks import finite_float, int_at_least, shaped
from lexppl.configured import Configured
from lexppl.effects import MASK_KIND, imputation_particles, mask_particles, penalty
from lexppl.inference import LossTerm, NestedIWAE, Stage, System, Unscored
from lexppl.models.architectures.base import Architecture, architecture_of
from lexppl.models.grouping import Grouping
from lexppl.models.lex import observe
from lexppl.models.likelihoods import CategoricalLikelihood, Likelihood, NormalLikelihood
from lexppl.models.predictor import check_classes


class SENN(Configured, PyroModule):
    """A predictor that explains itself: outputs `f_c(x) = θ_c(x)ᵀ x + b_c`, with the penalty

        λ Σ_c ‖∇_x f_c(x) − θ_c(x)‖²,

    which is 0 where the coefficients are the slopes of f.

    Args:
        network: x `(B, *event)` to θ `(B, C · D)`, by output and then by feature; each row by
            itself.
        likelihood: what the C outputs mean.
        outputs: C; 1 for a response.
        robustness: λ, in nats (for labels) a unit of the squared norm.
        bias: whether b is learned; else 0.
        grouping: which features an entry of the attribution adds up.

    Raises:
        ValueError: λ < 0, no outputs, several for a response; from a call, a network of another
            number of coefficients.
        TypeError: a likelihood that is none.

    Sites: `mask` `(L, B)` + `(G,)`, the signed attributions `θ_g(x) x_g` of the likeliest class,
    for certain; `robustness`, the penalty, given y; `y` `(K, L, B)`.

    Example:
        >>> from lexppl.models import MLP
        >>> program = SENN(MLP(3, 6, (8,)), CategoricalLikelihood(), outputs=2)
        >>> program.outputs_of(torch.zeros(4, 3)).detach()[0]
        tensor([0., 0.])
    """

    def __init__(
        self,
        network: nn.Module,
        likelihood: Likelihood,
        outputs: int,
        robustness: float = 0.01,
        bias: bool = True,
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        robustness = finite_float("robustness", robustness, least=0.0)
        outputs = int_at_least("outputs", outputs)
        if not isinstance(likelihood, Likelihood):
            raise TypeError(f"likelihood must be a Likelihood; it is {type(likelihood).__name__}")
        if outputs > 1 and not likelihood.discrete:
            raise ValueError(f"a response has one output; outputs is {outputs}")
        self.network = network
        self.likelihood = likelihood
        self.outputs = outputs
        self.robustness = float(robustness)
        self.bias = bool(bias)
        self.grouping = grouping
        self.intercept = nn.Parameter(torch.zeros(outputs), requires_grad=self.bias)

    def reset_parameters(self) -> None:
        """Start from an intercept of 0 again."""
        nn.init.zeros_(self.intercept)

    def coefficients(self, x: Tensor) -> Tensor:
        """θ(x), `(B, C, D)`."""
        theta: Tensor = self.network(x)
        features = prod(x.shape[1:])
        note = f"of {self.outputs} outputs and {features} features"
        shaped("coefficients", theta, ("…", self.outputs * features), note=note)
        return theta.reshape(len(x), self.outputs, features)

    def outputs_of(self, x: Tensor) -> Tensor:
        """Outputs of the network, f(x), `(B, C)`."""
        return torch.einsum("bcd,bd->bc", self.coefficients(x), x.flatten(1)) + self.intercept

    def unsteadiness(self, x: Tensor) -> Tensor:
        """`Σ_c ‖∇_x f_c(x) − θ_c(x)‖²`, `(B,)`."""

        def total(rows: Tensor) -> Tensor:
            return self.outputs_of(rows).sum(0)

        # Rows do not mix, so the gradient of the sum over rows holds each row's own.
        slopes = jacrev(total)(x.detach()).movedim(0, 1).flatten(2)
        return (slopes - self.coefficients(x)).square().sum((-2, -1))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            shares = self.coefficients(x) * x.flatten(1).unsqueeze(1)
            outputs = shares.sum(-1) + self.intercept
            explained = shares.take_along_dim(outputs.argmax(-1)[:, None, None], 1).squeeze(1)
            if self.grouping is not None:
                summed = explained.new_zeros(len(x), self.grouping.entries)
                explained = summed.index_add(-1, self.grouping.index, explained)
            with mask_particles():
                # The attribution is read off; what is learned is learned from y.
                law = dist.Delta(explained.detach(), event_dim=1)
                pyro.sample("mask", law, infer={MASK_KIND: "attribution"})
                if y is not None and self.robustness > 0.0:
                    penalty("robustness", self.robustness * self.unsteadiness(x))
                with imputation_particles():
                    return observe("y", self.likelihood(outputs), y)


def senn(
    features: int | Architecture,
    *,
    classes: int | None,
    robustness: float = 0.01,
    bias: bool = True,
    grouping: Grouping | None = None,
    hidden: Sequence[int] | None = None,
    activation: str | None = None,
) -> System:
    """SENN (Alvarez-Melis & Jaakkola, "Towards robust interpretability with self-explaining neural
    networks", NeurIPS 2018, eqs. 3 and 4), with the features as concepts, `h(x) = x`:

        f(x) = θ(x)ᵀ x + b,    min E [ −log p(y | f(x)) + λ ‖∇_x f(x) − θ(x)‖² ].

    The attribution of a row is the signed `θ_g(x) x_g` of its likeliest class (or of the response);
    with b they add up to that class's logit.

    Deviations: the norm is squared and by row, summed over classes, so that λ does not depend on
    the batch; the paper writes the norm, and the released code takes that of a whole batch at once,
    of the log-probabilities' gradient, where ours is that of the logits, as in the paper's f. θ is
    not confined to (−1, 1), as the released code has it. Concepts are not learned, so there is no
    reconstruction loss.

    Args:
        features, classes: as in :func:`lexppl.systems.lex`.
        robustness: λ; the released code's default is 0.01.
        bias: whether there is a b.
        grouping: which features an entry of the attribution adds up.
        hidden: widths of θ's hidden layers; (100, 100) if None.
        activation: of θ, smooth; "tanh" if None.

    Raises:
        ValueError: fewer than two classes, λ < 0.

    Example:
        >>> senn(5, classes=3).build()[0].terms[0].model.outputs
        3
    """
    usual = {"hidden": (100, 100), "activation": "tanh"}
    architecture = architecture_of(features, grouping, usual, hidden, activation=activation)
    check_classes(classes)
    outputs = 1 if classes is None else classes

    def build() -> list[Stage]:
        likelihood = NormalLikelihood() if classes is None else CategoricalLikelihood()
        network = architecture.coefficients(outputs)
        model = SENN(network, likelihood, outputs, robustness, bias, architecture.grouping)
        return [Stage([LossTerm(model, NestedIWAE(1, estimator=Unscored()))])]

    return System(build, {"batch_size": 128, "learning_rate": 1e-3, "weight_decay": 0.0})
