"""The column of what a choice tells."""

import pytest
import torch

from lexppl.compare import compare
from lexppl.inference.schedules import Linear


@pytest.mark.complete
def test_a_choice_by_the_answer_is_seen_and_one_by_lot_is_not():
    x = torch.randn(700, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()

    def cheat(rows):
        told = (rows[:, 0] > 0).float()
        return torch.stack([0 * told, 0 * told, told, 1 - told], 1)

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
        raise AssertionError("it was asked")

    with pytest.raises(ValueError, match="y of test, which leaks=True reads, has 7"):
        compare({"never": never}, (x[:100], y[:100]), (x[100:], y[100:]), leaks=True)
