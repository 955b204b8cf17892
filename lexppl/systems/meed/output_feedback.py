"""A network that is shown the output of the model that it explains."""

import torch
from torch import Tensor, nn

from lexppl.configured import Configured
from lexppl.models.regimes import Frozen, frozen


class OutputFeedback(Configured, nn.Module):
    """`network([x, p_m(· | x)])`: the rows of a table with a model's probabilities appended.

    MEED's selector sees what it explains (Liang et al. 2020, § 3.1).

    Args:
        network: `(B, D + C)` to logits `(B, G)`.
        model: from x to a distribution of labels; a frozen copy is used.

    Example:
        >>> from lexppl.models import MLP
        >>> from lexppl.models.table_parts import table_predictor
        >>> OutputFeedback(MLP(5, 3), table_predictor(3, 2, (8,)))(torch.zeros(4, 3)).shape
        torch.Size([4, 3])
    """

    def __init__(self, network: nn.Module, model: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.model = model if isinstance(model, Frozen) else frozen(model)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.network(torch.cat([x, self.model(x).probs.detach()], -1))
        return outputs
