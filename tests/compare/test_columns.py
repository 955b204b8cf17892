"""Columns of a comparison: leaks of the choice, and the rank of signed attributions."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule

from lexppl import effects, fit
from lexppl.compare import compare
from lexppl.inference import NestedIWAE
from lexppl.inference.schedules import Linear


@pytest.mark.complete
def test_a_choice_by_the_answer_is_seen_and_one_by_lot_is_not():
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def cheat(rows):
        choice = (rows[:, 0] > 0).float()
        return torch.stack([0 * choice, 0 * choice, choice, 1 - choice], 1)

    quick = {
        "epochs": 20,
        "hidden": (16,),
        "batch_size": 300,
        "learning_rate": Linear(2e-2, 0.0, begin=0.2),
    }
    train, test = (x[:100], y[:100]), (x[100:], y[100:])
    table = compare({"cheat": cheat}, train, test, sizes=[1], leaks=True, fit_options=quick)
    assert table.loc["cheat", "encoded@1_lower"] > 0.3
    assert table.loc["cheat", "accuracy@1"] < 0.65
    assert table.loc["random", "encoded@1_lower"] < 0.0


def test_few_of_a_label_are_refused_before_any_fit():
    x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(200, dtype=torch.long)
    y[:50] = 1
    y[100:107] = 1

    def never(rows):
        raise AssertionError("the method has run")

    with pytest.raises(ValueError, match="y of test, which leaks=True reads, has 7"):
        compare({"never": never}, (x[:100], y[:100]), (x[100:], y[100:]), leaks=True)


X = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
ROWS = [(X[some], (X[some][:, 2] > 0).long()) for some in (slice(0, 100), slice(100, 200))]


class Against(PyroModule):
    """Gives the feature that decides a large negative attribution."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(2))

    def reset_parameters(self):
        torch.nn.init.zeros_(self.bias)

    def forward(self, x, y=None):
        with pyro.plate("data", len(x), dim=-1), effects.mask_particles():
            attribution = torch.tensor([0.1, 0.2, -5.0]).expand(len(x), 3)
            pyro.sample("mask", dist.Delta(attribution, event_dim=1))
            return pyro.sample("y", dist.Categorical(logits=self.bias.expand(len(x), 2)), obs=y)


def test_the_largest_by_size_is_kept_first():
    result = fit(Against, ROWS[0], objective=NestedIWAE(1, samples=2), epochs=1, progress=False)
    table = compare(
        {"against": result},
        *ROWS,
        sizes=[1],
        fit_options={"epochs": 20, "hidden": (16,), "batch_size": 20, "learning_rate": 1e-2},
    )
    assert table.loc["against", "accuracy@1"] > 0.85
    assert table.loc["random", "accuracy@1"] < 0.75
