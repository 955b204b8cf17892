"""Which of two fits says more of validation rows."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from lexppl.models import Grouping
from lexppl.tabular import trees_of_kept as module
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.trees_of_kept import says_more


@dataclass(frozen=True)
class Said:
    """A fit of which only is known what it says of the rows, `(R, N)`."""

    each: torch.Tensor
    seed: int = 0


def rows_of(count: int, weights: torch.Tensor | None = None) -> EncodedRows:
    part = (torch.zeros(count, 1), torch.zeros(count))
    weighed = None if weights is None else (torch.ones(count), weights)
    return EncodedRows(part, part, Grouping([0], ("a",)), ("a",), ("no", "yes"), weights=weighed)


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "predictive_log_likelihood", lambda fit, *_, **__: fit.each)


def test_more_is_by_more_than_an_error_of_the_mean_over_replicates() -> None:
    spread = torch.from_numpy(np.random.default_rng(0).normal(size=400))
    # Of a spread of 20 over 400 rows the mean has an error of 1.
    spread = (spread - spread.mean()) / (spread.std() / 20.0)
    one = Said(torch.zeros(2, 400).double())

    def better(mean: float) -> bool:
        other = Said(torch.stack([spread + mean - 7.0, spread + mean + 7.0]))
        found, said, before = says_more(other, one, rows_of(400))
        assert said == pytest.approx(mean) and before == 0.0
        return found

    assert better(1.01) and not better(0.99) and not better(-3.0)


def test_rows_count_as_often_as_they_weigh() -> None:
    one, other = Said(torch.zeros(1, 4)), Said(torch.tensor([[1.0, 1.1, -3.0, -3.1]]))
    assert not says_more(other, one, rows_of(4))[0]
    found, said, _ = says_more(other, one, rows_of(4, torch.tensor([5.0, 5.0, 0.0, 0.0])))
    assert found and said == pytest.approx(1.05)
