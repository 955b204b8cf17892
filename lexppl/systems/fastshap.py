"""FastSHAP: Shapley values by one pass of a network."""

from collections.abc import Sequence
from math import prod
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.nn import PyroModule
from torch import Tensor, nn

from lexppl.argument_checks import shaped
from lexppl.configured import Configured
from lexppl.distributions import ShapleyKernel
from lexppl.distributions.computed_once import MadeOnce
from lexppl.distributions.support import distribution_targets, lists_labels
from lexppl.effects import MASK_KIND, imputation_particles, mask_particles, penalty
from lexppl.inference import LossTerm, NestedIWAE, Stage, System, Unscored
from lexppl.models.architectures.base import Architecture, architecture_of, predictor_of
from lexppl.models.grouping import Grouping
from lexppl.models.imputers.simple import constant_imputer
from lexppl.models.lex import LEX, observe
from lexppl.models.missing import possible_entries
from lexppl.models.predictor import check_classes
from lexppl.models.regimes import frozen
from lexppl.models.selectors import RandomSelector


class TeacherTargets(Configured, PyroModule):
    """A program that observes a given model's probabilities `(B, C)` or mean `(B,)` of all of x in
    place of y.

    A y that the model could not have given is refused where arguments are checked.
    """

    def __init__(self, program: Any, teacher: nn.Module) -> None:
        super().__init__()
        self.program = program
        self.teacher = frozen(teacher)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        if y is None:
            return self.program(x)
        distribution = self.teacher(x)
        outputs = distribution_targets(distribution).detach()
        if y.dim() < 2:
            # A look at y for what the model could not have given, where arguments are checked.
            distribution.log_prob(y)
        else:
            shaped("y", y, (len(x),), outputs.shape)
        return self.program(x, outputs)


class FastSHAP(Configured, PyroModule):
    """Shapley values φ(x, c) of the game `v_{x,c}(S) = q(c | x_S)` of a surrogate, which predicts y
    from all of x, with the misfit of φ as a penalty:

        y ~ q(y | x),    S ~ ShapleyKernel,
        misfit = mean (v_{x,c}(S) − v_{x,c}(∅) − Σ_{g ∈ S} φ_g(x, c))²,

    the mean over the C classes, and over S and its complement; before that `φ += (v(1) − v(∅) − Σ_g
    φ_g) / G`. The misfit is a penalty and no likelihood, so that the distribution of y given x is
    the surrogate's alone.

    Args:
        network: x `(B, *event)` to `(B, C · G)`, by class and then by entry.
        surrogate: the distribution of y given features of which some are hidden; the misfit gives
            it no gradient.
        entries: G ≥ 2.
        classes: C, or None for a real response, whose mean is then the game, in its units.
        imputer: what hidden features become, a constant; 0 if None.
        grouping: which features a player stands for.

    Raises:
        ValueError: fewer than two entries or classes.
        TypeError: an imputer that draws.

    Sites: `mask` `(L, B)` + `(G,)`, the signed attributions of the likeliest class, for certain;
    given y, `coalition` `(L, B)` + `(G,)` and the penalty `misfit` `(L, B)`; `y` `(K, L, B)`.

    Example:
        >>> from lexppl.models import MLP
        >>> from lexppl.models.predictor import table_predictor
        >>> program = FastSHAP(MLP(3, 6, (8,)), table_predictor(3, 2, (8,)), entries=3, classes=2)
        >>> program.attributions(torch.zeros(5, 3)).shape
        torch.Size([5, 2, 3])
    """

    def __init__(
        self,
        network: nn.Module,
        surrogate: nn.Module,
        entries: int,
        classes: int | None,
        imputer: nn.Module | None = None,
        grouping: Grouping | None = None,
    ) -> None:
        super().__init__()
        ShapleyKernel(entries)
        check_classes(classes)
        self.network = network
        self.surrogate = surrogate
        self.entries = entries
        self.classes = classes
        self.imputer = constant_imputer(imputer)
        self.grouping = grouping
        self._kept = MadeOnce()

    def values(self, x: Tensor, coalition: Tensor) -> Tensor:
        """The game's values `v_{x,c}(S)`, without gradient: coalitions `(…, B, G)` to `(…, B, C)`.

        Raises:
            ValueError: a surrogate of another number of classes.
        """
        keep = coalition if self.grouping is None else self.grouping(coalition)
        return self._numbers(self.surrogate(self.imputer(x, keep > 0.5).mean))

    def attributions(self, x: Tensor) -> Tensor:
        """φ of all classes, `(B, C, G)`; C is 1 for a response."""
        return self._attributions(x, self._of_none(x), self._numbers(self.surrogate(x)))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        with pyro.plate("data", len(x), dim=-1):
            distribution = self.surrogate(x)
            none, everything = self._of_none(x), self._numbers(distribution)
            phi = self._attributions(x, none, everything)
            explained = phi.take_along_dim(everything.argmax(-1)[:, None, None], 1).squeeze(1)
            with mask_particles():
                # What is learned is learned from the game's values, not from the explained class.
                law = dist.Delta(explained.detach(), event_dim=1)
                pyro.sample("mask", law, infer={MASK_KIND: "attribution"})
                if y is not None:
                    kernel = self._kept.like(x, self.entries, ShapleyKernel)
                    coalition = pyro.sample("coalition", kernel.expand((len(x),)))
                    penalty("misfit", self.misfit(x, coalition, phi, none))
                with imputation_particles():
                    return observe("y", distribution, y)

    def misfit(self, x: Tensor, coalition: Tensor, phi: Tensor, none: Tensor) -> Tensor:
        """The mean squared error of φ `(B, C, G)` at coalitions `(L, B, G)`, given v(∅) `(B, C)`:
        `(L, B)`."""
        players = torch.stack([coalition, 1.0 - coalition])
        fitted = none + torch.einsum("plbg,bcg->plbc", players, phi)
        return (self.values(x, players) - fitted).square().mean((0, -1))

    def _of_none(self, x: Tensor) -> Tensor:
        """Value of the empty coalition, v(∅), `(B, C)`."""
        return self.values(x, x.new_zeros(len(x), self.entries))

    def _numbers(self, distribution: Any) -> Tensor:
        outputs = distribution_targets(distribution).detach()
        labels = outputs.shape[-1] if lists_labels(distribution) else None
        if labels != self.classes:
            raise ValueError(
                f"the surrogate has {labels or 'a response, no'} classes, and classes is "
                f"{self.classes}"
            )
        return outputs.unsqueeze(-1) if labels is None else outputs

    def _attributions(self, x: Tensor, none: Tensor, everything: Tensor) -> Tensor:
        phi: Tensor = self.network(x).reshape(len(x), self.classes or 1, self.entries)
        gap = everything - none - phi.sum(-1)
        there = possible_entries(self.network, x)
        if there is None:
            return phi + gap.unsqueeze(-1) / self.entries
        # The padding of a text is a player that adds nothing to any coalition.
        share = there / there.sum(-1, keepdim=True).clamp(min=1)
        return phi + gap.unsqueeze(-1) * share.unsqueeze(-2)


def fastshap(
    features: int | Architecture,
    surrogate: nn.Module | None = None,
    *,
    classes: int | None,
    black_box: nn.Module | None = None,
    samples: int = 16,
    surrogate_samples: int = 1,
    grouping: Grouping | None = None,
    imputer: nn.Module | None = None,
    hidden: Sequence[int] | None = None,
    predictor_hidden: Sequence[int] | None = None,
) -> System:
    """FastSHAP (Jethani, Sudarshan, Covert, Lee & Ranganath, "FastSHAP: real-time Shapley value
    estimation", ICLR 2022): Shapley values by weighted least squares, for all rows at once,

        min_φ E_x E_{c ~ Unif} E_{S ~ kernel} (v_{x,c}(S) − v_{x,c}(∅) − Σ_{g ∈ S} φ_g(x, c))²,
        P(|S| = s) ∝ 1 / (s (G − s)),    φ ← φ + (v(1) − v(∅) − Σ_g φ_g) / G,

    of the game `v_{x,c}(S) = q(c | x_S)` of a surrogate, which is fitted first, to the model's
    output under masks of any size,

        min_q E_x E_S KL(p_m(· | x) ‖ q(· | x_S)),    P(|S| = s) = 1 / (G + 1).

    The attribution of a row is the signed φ of the class that is likeliest by the surrogate, or of
    the response.

    Deviations: the mean over classes is exact, where the paper draws a class (the released code
    averages too); the released code multiplies the loss by G, and lets its surrogate of tables see
    the mask beside the masked row: here a hidden feature and one that is 0 are the same. Of a
    response the game is the mean, in its units. The learning rate is constant, where the released
    code lowers it on a plateau.

    Args:
        features, classes: as in :func:`lexppl.systems.lex`.
        surrogate: a given distribution of y given features of which some are hidden, from `(…, B,
            *event)`; a frozen copy is used, and there is one stage only.
        black_box: the explained model, whose output the surrogate is fitted to; a frozen copy is
            used. If None the surrogate is fitted to y: a black box's probabilities, or labels.
        samples: coalitions (pairs) a row and step; the released code's 32 coalitions are 16 pairs.
        surrogate_samples: masks a row and step in the surrogate's stage.
        grouping: which features a player stands for; one player a feature if None.
        imputer: what hidden features become, a constant; 0 if None.
        hidden, predictor_hidden: widths of φ's and the surrogate's hidden layers; (128, 128) if
            None.

    Raises:
        ValueError: fewer than two players or classes; both a surrogate and a black box.
        TypeError: a surrogate or black box that is no module, an imputer that draws.

    Example:
        >>> first, second = fastshap(5, classes=2).build()
        >>> type(first.terms[0].model).__name__, type(second.terms[0].model).__name__
        ('LEX', 'FastSHAP')
    """
    usual = {"hidden": (128, 128), "predictor_hidden": (128, 128)}
    architecture = architecture_of(features, grouping, usual, hidden, predictor_hidden)
    entries = architecture.entries
    if entries < 2:
        raise ValueError(
            f"Shapley values share out among at least 2 mask entries; G is {entries}, and "
            f"n_features={prod(architecture.event_shape)}"
        )
    check_classes(classes)
    hides = constant_imputer(architecture.imputer() if imputer is None else imputer)
    if surrogate is not None and black_box is not None:
        raise ValueError("a surrogate is not fitted to a black box: give surrogate or black_box")
    fixed_game = None if surrogate is None else frozen(surrogate)
    teacher = None if black_box is None else frozen(black_box)

    def build() -> list[Stage]:
        game: nn.Module = predictor_of(architecture, classes) if fixed_game is None else fixed_game
        network = architecture.selector((classes or 1) * entries)
        explainer = FastSHAP(network, game, entries, classes, hides, architecture.grouping)
        squares = NestedIWAE(1, samples=samples, estimator=Unscored())
        shapley = LossTerm(explainer, squares, learns=[network])
        if fixed_game is not None:
            return [Stage([shapley])]
        masks = RandomSelector(entries, sizes=[1.0] * (entries + 1))
        program: nn.Module = LEX(masks, hides, game, grouping=architecture.grouping)
        if teacher is not None:
            program = TeacherTargets(program, teacher)
        likelihood = NestedIWAE(1, samples=surrogate_samples, estimator=Unscored())
        return [Stage([LossTerm(program, likelihood, learns=[game])]), Stage([shapley])]

    published = {"epochs": 200, "batch_size": 32, "learning_rate": 2e-4, "weight_decay": 0.0}
    return System(build, published)
