"""Weights that do not lie in order in memory learn as those that do."""

import torch

from lexppl.inference import fit
from lexppl.models import GaussianImputer
from tests.inference.builders import explainer, table


def fitted_weights(transposed: bool) -> torch.Tensor:
    model = explainer(imputer=GaussianImputer(), hidden=(5,))
    if transposed:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.data = module.weight.data.T.contiguous().T
    result = fit(model, table(64), epochs=3, batch_size=16, progress=False)
    return torch.cat([w.detach().reshape(-1) for w in result.model.parameters()])


def test_transposed_weights_learn_alike() -> None:
    """Fused Adam pairs weights and gradients by place in memory."""
    torch.testing.assert_close(fitted_weights(True), fitted_weights(False), rtol=1e-4, atol=1e-5)
