"""What explaining rows of thousands of mask entries holds at once, counted tensor by tensor."""

import weakref

import numpy as np
import pytest
import torch
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from lexppl import explain
from lexppl.arviz_compatibility import group_of
from lexppl.explanation import mask_sampler
from lexppl.models import LEX, CategoricalLikelihood, ConstantImputer, KSubsetSelector, Predictor

G = 400


class Held(TorchDispatchMode):
    """Bytes of the tensors that are alive, and the most that were."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in _pytree.tree_leaves(out):
            if isinstance(tensor, torch.Tensor):
                self._see(tensor.untyped_storage())
        self.most = max(self.most, self.now)
        return out

    def _see(self, storage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        weakref.finalize(storage, self._gone, key, size)

    def _gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size


def program() -> LEX:
    torch.manual_seed(0)
    return LEX(
        KSubsetSelector(torch.nn.Linear(G, G), 40),
        ConstantImputer(),
        Predictor(torch.nn.Linear(G, 2), CategoricalLikelihood()),
    )


def rows(number: int) -> torch.Tensor:
    return torch.randn(number, G, generator=torch.Generator().manual_seed(1))


def most_held(number: int, **options) -> int:
    x, model = rows(number), program()
    with Held() as held:
        explain(model, x, **{"draws": 20, **options})
    return held.most - x.nbytes


@pytest.mark.complete(but=1)
@pytest.mark.parametrize("draws", [0, 20])
def test_what_a_chunk_holds_does_not_depend_on_the_number_of_rows(draws):
    few = most_held(40, rows_per_chunk=20, draws=draws)
    many = most_held(400, rows_per_chunk=20, draws=draws)
    # The check that all of x is finite has a byte for each of its numbers.
    assert many < few + 2 * 400 * G
    assert few > 20 * G * 4
    # Negative control: all rows in one chunk hold more.
    assert most_held(400, rows_per_chunk=400, draws=draws) > 3 * few


def test_draws_are_fewer_by_default_where_masks_would_not_fit(monkeypatch):
    model, x = program(), rows(8)
    every = explain(model, x)
    assert group_of(every, "predictions").sizes["draw"] == 100
    monkeypatch.setattr(mask_sampler, "MOST_BYTES", 8 * G * 30 + 5)
    some = explain(model, x)
    masks = group_of(some, "predictions")["mask"]
    assert masks.sizes["draw"] == 30
    assert masks.dtype == np.int8
    assert masks.nbytes <= 8 * G * 30
    name = "selection_probability"
    means = [group_of(p, "sample_stats")[name].values for p in (every, some)]
    assert np.array_equal(*means), "means are of the distribution, whatever is drawn"
    assert group_of(explain(model, x, draws=60), "predictions").sizes["draw"] == 60
    monkeypatch.setattr(mask_sampler, "MOST_BYTES", 1)
    assert group_of(explain(model, x), "predictions").sizes["draw"] == mask_sampler.LEAST_DRAWS
