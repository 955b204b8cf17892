"""A network that is shown the output of the model that it explains."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.possible_entries import possible_entries
from lexppl.models.regimes import Frozen, frozen


class OutputFeedback(Configured, nn.Module):
    """`network([x, p_m(· | x)])`: the rows of a table with a model's probabilities appended, or
    what else joins the two.

    MEED's selector sees what it explains (Liang et al. 2020, § 3.1).

    Args:
        network: `(B, D + C)`, or what `join` makes, to logits `(B, G)`.
        model: from x to a distribution of labels; a frozen copy is used.
        join: from x `(B, *event)` and the probabilities `(B, C)` to what the network takes, such as
            :class:`lexppl.models.ExtraChannel`; None for rows laid out flat, with the
            probabilities after them.

    Example:
        >>> from lexppl.models import MLP
        >>> from lexppl.models.table_parts import table_predictor
        >>> OutputFeedback(MLP(5, 3), table_predictor(3, 2, (8,)))(torch.zeros(4, 3)).shape
        torch.Size([4, 3])
    """

    left_out_if_none: ClassVar[frozenset[str]] = frozenset({"join"})

    def __init__(self, network: nn.Module, model: nn.Module, join: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network
        self.join = join
        self.model = model if isinstance(model, Frozen) else frozen(model)

    def possible_entries(self, x: Tensor) -> Tensor | None:
        """Which entries a mask can keep, `(B, G)`, by the network; None for all of them."""
        return possible_entries(self.network, x)

    def forward(self, x: Tensor) -> Tensor:
        output = self.model(x).probs.detach()
        both = torch.cat([x.flatten(1), output], -1) if self.join is None else self.join(x, output)
        logits: Tensor = self.network(both)
        return logits
