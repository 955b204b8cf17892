"""A prior from gradients that leads a selector at first and then fades."""

from typing import ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor, nn
from torch.func import grad

from lexppl.argument_checks import int_at_least
from lexppl.effects import fit_progress
from lexppl.models.grouping import Grouping
from lexppl.models.penalties import Penalty
from lexppl.models.possible_entries import NEVER, can_be_kept
from lexppl.models.regimes import Frozen, frozen


class FadingPrior(Penalty):
    r"""`λ · mean_g |z̃_g − z_g| / (m + 1)` with `z̃ ∝ (z^m r)^{1/(m+1)}`, `r = softmax|∇ × input|`.

    In the first epoch (m = 0) the selector's probabilities z are drawn to the attributions r of
    the explained model; later the target is ever more z itself and its weight falls (MEED, Liang
    et al. 2020, § 3.4). The released code takes the softmax of the negative attributions; this is
    the paper's.

    Args:
        weight: λ.
        model: the explained model, from x to a distribution of labels; a frozen copy is used.
        epochs: of the fit, which turn its progress into m.
        grouping: which features an entry stands for; their attributions add up.
        imputer: what hides features from the model, for attributions to what the mask keeps where
            a gradient in x has no meaning, such as of word numbers; 0 if None.

    Raises:
        ValueError: a weight below 0, fewer than one epoch.

    Example:
        >>> import torch
        >>> from lexppl.distributions import MaxConcrete
        >>> from lexppl.models.table_parts import table_predictor
        >>> prior = FadingPrior(1.0, table_predictor(3, 2, (8,)), epochs=10)
        >>> distribution = MaxConcrete(0.5, torch.zeros(4, 3), k=1)
        >>> cost = prior(distribution, distribution.rsample(), torch.zeros(4, 3))
        >>> bool((cost.abs() < 1e-6).all())
        True
    """

    reads_rows: ClassVar[bool] = True
    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"imputer"})

    def __init__(
        self,
        weight: float,
        model: nn.Module,
        epochs: int,
        grouping: Grouping | None = None,
        imputer: nn.Module | None = None,
    ) -> None:
        super().__init__(weight)
        self.model = model if isinstance(model, Frozen) else frozen(model)
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
        """`|∂ max_c log p(c | x̃) / ∂z|` at z = 1, `(B, G)`; it is `|∂/∂x · x|` where hidden
        features are 0."""

        def certainty(rows: Tensor) -> Tensor:
            return self.model(rows).logits.log_softmax(-1).amax(-1).sum()

        x = x.detach()
        if self.imputer is None:
            size = (grad(certainty)(x) * x).abs()
        else:
            hide = self.imputer
            size = grad(lambda keep: certainty(hide(x, keep).rsample()))(torch.ones_like(x)).abs()
        return size if self.grouping is None else self.grouping.sums(size)
