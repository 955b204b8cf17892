"""Weights that do not lie in order in memory learn as those that do."""

import pytest
import torch

from lexppl.inference import fit
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    GaussianImputer,
    Predictor,
)

X = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def fitted_weights(transposed: bool, replicates: int) -> torch.Tensor:
    selector, predictor = MLP(3, 3, (5,), seed=0), MLP(3, 2, (5,), seed=1)
    model = LEX(
        BernoulliSelector(selector),
        GaussianImputer(),
        Predictor(predictor, CategoricalLikelihood()),
    )
    if transposed:
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                module.weight.data = module.weight.data.T.contiguous().T
    result = fit(model, (X, Y), epochs=3, replicates=replicates, batch_size=16, progress=False)
    parts = [w.detach().reshape(-1) for w in result.models[0].parameters()]
    return torch.cat(parts)


@pytest.mark.parametrize("replicates", [1, 2])
def test_transposed_weights_learn_alike(replicates: int) -> None:
    """Fused Adam pairs weights and gradients by place in memory."""
    plain, transposed = fitted_weights(False, replicates), fitted_weights(True, replicates)
    torch.testing.assert_close(transposed, plain, rtol=1e-4, atol=1e-5)
