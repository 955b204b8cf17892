"""Rows at once where a network's layers are wider than a row."""

import torch
from torch import nn

from lexppl import explain, fit
from lexppl.inference.predictive import LARGEST_TENSOR, LayerWidths, layer_widths, rows_at_once
from lexppl.models import MLP, CategoricalLikelihood, Predictor, UnmaskedPredictor, images
from lexppl.systems import lex

SHAPE = (1, 8, 8)


def test_layers_bound_the_rows_that_are_run_at_once():
    x = torch.zeros(10, 3)
    assert rows_at_once(x, 2) == LARGEST_TENSOR // (2 * 128)
    assert rows_at_once(x, 2, layers=LayerWidths(1000, 10)) == LARGEST_TENSOR // 2000
    assert rows_at_once(x, 2, layers=LayerWidths(1000, 4000)) == LARGEST_TENSOR // 4000
    assert rows_at_once(x, 2, layers=LayerWidths(0, LARGEST_TENSOR * 2)) == 1


def test_a_network_says_how_much_its_largest_layer_holds():
    program = lex(images(SHAPE, blocks=(5, 3), levels=2, width=2), classes=2, k=1).program()
    held = {"selector": 0, "predictor": 0}
    for name, module in program.named_modules():
        if isinstance(module, nn.Conv2d):
            part = name.split(".")[0]
            module.register_forward_hook(
                lambda m, given, out, part=part: held.__setitem__(
                    part, max(held[part], out[0].numel(), given[0][0].numel())
                )
            )
    program.selector(torch.zeros(2, *SHAPE))
    program.predictor(torch.zeros(2, *SHAPE))
    widths = layer_widths(program)
    assert widths == LayerWidths(held["predictor"], held["selector"])
    assert layer_widths(UnmaskedPredictor(Predictor(MLP(3, 2), CategoricalLikelihood()))) == (
        LayerWidths()
    )


def test_a_chunk_of_images_is_no_larger_than_its_layers_allow(monkeypatch):
    x = torch.rand(30, *SHAPE, generator=torch.Generator().manual_seed(0))
    y = (torch.arange(30) % 2).long()
    system = lex(images(SHAPE, 4, blocks=(8,), levels=1, width=2), classes=2, k=1)
    result = fit(system, (x, y), epochs=1, progress=False)
    sizes = []
    result.model.predictor.predictors[0].network.register_forward_hook(
        lambda m, given, out: sizes.append(len(given[0]))
    )
    monkeypatch.setattr("lexppl.inference.predictive.LARGEST_TENSOR", 8 * 64 * 10 * 4)
    explain(result, x, draws=4)  # Looks at the program first.
    sizes.clear()
    explain(result, x, draws=4)
    assert max(sizes) == 40
