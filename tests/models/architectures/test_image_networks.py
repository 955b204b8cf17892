"""Networks of images: shapes over sides of any size, gradients, batch norm, initial weights."""

from dataclasses import replace

import pytest
import torch
from torch.nn.functional import adaptive_avg_pool2d

from lexppl.inference import LossTerm, NestedIWAE, Stage, System, fit
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.replicates import Replicates
from lexppl.inference.stages import TrainingModules
from lexppl.models import (
    CategoricalLikelihood,
    Grouping,
    Predictor,
    UnmaskedPredictor,
    flat_images,
    images,
)
from lexppl.models.architectures.images import (
    ConvolutionalNetwork,
    ConvolutionBlock,
    EntryMeans,
    TorchvisionNetwork,
    UNet,
    halved,
)
from lexppl.models.networks import initial_weights
from lexppl.systems import fastshap, real_x
from lexppl.threads import evaluating
from tests import needs
from tests.refusals import refusals, refused

SIDES = [(1, 1), (1, 6), (2, 3), (5, 5), (7, 4), (8, 8), (9, 13)]


def drawn(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def of_torchvision(*arguments):
    needs.torchvision()
    return TorchvisionNetwork(*arguments)


def sound(network, shape, outputs):
    """Rows do not mix, and every weight and pixel has a finite gradient."""
    x = drawn(4, *shape).requires_grad_()
    found = network(x)
    assert found.shape == (4, outputs)
    assert torch.allclose(network(x[1:2]), found[1:2], atol=1e-5)
    found.square().sum().backward()
    assert bool(x.grad.isfinite().all())
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("levels", [0, 1, 2, 4])
@pytest.mark.parametrize("patch", [1, 2, 3])
def test_a_unet_has_a_number_for_each_patch_whatever_the_size(sides, levels, patch):
    shape = (2, *sides)
    grouping = Grouping.patches(shape, min(patch, max(sides)))
    outputs = 3 * grouping.entries
    sound(UNet(shape, outputs, grouping, levels, width=2), shape, outputs)


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("blocks", [(), (3,), (2, 3, 4, 5)])
def test_a_convolutional_network_takes_any_size(sides, blocks):
    shape = (3, *sides)
    sound(ConvolutionalNetwork(shape, 5, blocks), shape, 5)


def test_every_pixel_counts_and_every_weight_learns():
    # Smooth activations: with ReLU a weight may be idle by chance.
    network = UNet((1, 5, 7), 35, None, 2, 4, activation="tanh")
    x = drawn(3, 1, 5, 7).requires_grad_()
    network(x).square().sum().backward()
    assert bool((x.grad != 0).all())
    assert all(bool((p.grad != 0).all()) for p in network.parameters())


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_halving_rounds_upwards_and_means_are_of_the_pixels_that_there_are(size, expected):
    x = drawn(1, 1, size, size)
    small = halved(x)
    assert small.shape == (1, 1, expected, expected)
    assert torch.allclose(
        small[0, 0, -1, -1], x[0, 0, 2 * expected - 2 :, 2 * expected - 2 :].mean()
    )


@pytest.mark.parametrize(
    ("shape", "patch"), [((1, 4, 6), 2), ((2, 5, 7), 3), ((1, 3, 3), 1), ((1, 2, 2), 2)]
)
def test_means_of_patches_are_those_of_their_pixels(shape, patch):
    grouping = Grouping.patches(shape, patch)
    means = EntryMeans(shape, grouping)
    maps = drawn(2, 3, *shape[1:])
    for entry in range(grouping.entries):
        inside = (grouping.index[: shape[1] * shape[2]] == entry).reshape(shape[1:])
        assert torch.allclose(means(maps)[..., entry], maps[..., inside].mean(-1))
    if shape[1] % patch == 0 and shape[2] % patch == 0:
        other = adaptive_avg_pool2d(maps, (shape[1] // patch, shape[2] // patch))
        assert torch.allclose(means(maps), other.flatten(-2))


@pytest.mark.parametrize("name", ["densenet121", "mobilenet_v2", "mobilenet_v3_small"])
def test_torchvision_networks_take_small_images_of_one_channel(name):
    with initial_weights(0):
        network = of_torchvision(name, (1, 9, 28), 3).eval()
    x = drawn(2, 1, 9, 28)
    assert network(x).shape == (2, 3)
    assert torch.allclose(network(x)[:1], network(x[:1]), atol=1e-4)
    assert network.network.__class__.__name__.lower()[:5] == name[:5]
    with initial_weights(0):
        three = of_torchvision(name, (3, 9, 28), 3).eval()
    assert torch.allclose(three(x.expand(-1, 3, -1, -1)), network(x), atol=1e-5)


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (lambda: UNet((1, 4, 4), 16, None, 1, 2), (2, 1, 4, 5)),
        (lambda: UNet((1, 4, 4), 16, None, 1, 2), (2, 16)),
        (lambda: ConvolutionalNetwork((1, 4, 4), 2, (3,)), (1, 4, 4)),
        (lambda: of_torchvision("mobilenet_v3_small", (1, 4, 4), 2), (2, 3, 4, 4)),
    ],
)
def test_images_of_another_size_are_refused_in_a_line(make, given):
    network = make()
    refused(r"images must have shape \(N, 1, 4, 4\); the shape is", network, torch.zeros(given))


test_what_does_not_fit_is_refused_where_it_is_given = refusals(
    (lambda: UNet((4, 4), 16), r"must be \(C, H, W\), channels first; it is \(4, 4\)"),
    (lambda: UNet((1, 4, 4), 17), "multiple of 16 entries; it is 17"),
    (lambda: UNet((1, 4, 4), 1, Grouping.patches((1, 4, 5), 5)), "grouping is of"),
    (
        lambda: UNet((2, 1, 2), 4, Grouping(range(4), event_shape=(2, 1, 2))),
        "gives the channels of a pixel different entries",
    ),
    (lambda: UNet((1, 4, 4), 16, levels=-1), "levels must be a whole number from 0 to 30"),
    (lambda: UNet((1, 4, 4), 16, activation="sine"), "activation must be one of"),
    (lambda: ConvolutionalNetwork((1, 4, 4), 2, (0,)), "a number of filters of blocks"),
    (lambda: images((1, 4, 4), 2, grouping=Grouping.patches((1, 4, 4), 2)), "either patches"),
    (lambda: images((1, 4, 4), grouping=Grouping.patches((1, 2, 8), 2)), "grouping is of"),
    (lambda: images((1, 4, 4), predictor="vgg"), "predictor must be one of"),
    (lambda: images((1, 4, 4), weights="DEFAULT"), "weights= are torchvision's"),
    (lambda: images((1, 4, 4), 0), "patches must be a whole number of at least 1"),
    (lambda: flat_images((1, 4, 4), hidden=(0,)), "a width of hidden"),
    (lambda: flat_images((1, 4, 4), activation="sine"), "activation must be one of"),
)


# Replicates and batch norm.

X = drawn(12, 1, 5, 5, seed=1)
Y = (X.mean((1, 2, 3)) > X.mean()).long()


def predictor(seed, name=None, **options):
    with initial_weights(seed):
        return seeded_predictor(name, **options)


def seeded_predictor(name, **options):
    if name is None:
        network = ConvolutionalNetwork((1, 5, 5), 2, (3, 4), **options)
    elif name == "unet":
        halves = Grouping.superpixels(torch.arange(5).expand(5, 5) // 3)
        network = UNet((1, 5, 5), 2, halves, levels=2, width=2, **options)
    else:
        network = of_torchvision(name, (1, 5, 5), 2)
    return UnmaskedPredictor(Predictor(network, CategoricalLikelihood(), event_dim=3))


def modules(seed, **options):
    term = LossTerm(predictor(seed, **options), NestedIWAE(1))
    keep_parameters_local(term.model)
    return TrainingModules([Stage([term])])


@pytest.mark.parametrize(
    "options", [{}, {"batch_norm": True}, {"name": "unet"}, {"name": "unet", "batch_norm": True}]
)
def test_replicates_at_once_are_separate_fits(options):
    # Each of the two alone, from the weights that the replicate began with, in the same batches.
    with program_settings(validate=False):
        for r in range(2):
            _together_and_alone(options, r)


def _together_and_alone(options, r):
    began = [modules(s, **options) for s in (11, 12)]
    together = Replicates([modules(s, **options) for s in (11, 12)])
    alone = Replicates([began[r]])
    for step in range(3):
        rows = slice(4 * step, 4 * step + 4)
        losses = []
        for replicates in (together, alone):
            term = replicates.template.stages[0].terms[0]
            loss = replicates.losses(term, term.objective, (X[rows], Y[rows]))
            gradients = torch.autograd.grad(loss.sum(), list(replicates.parameters.values()))
            with torch.no_grad():
                for p, g in zip(replicates.parameters.values(), gradients, strict=True):
                    p -= 0.05 * g
            losses.append(loss.detach())
        assert torch.allclose(losses[0][r], losses[1][0], atol=1e-5)
    of_both, of_one = together.separated()[r].state_dict(), alone.separated()[0].state_dict()
    for name, value in of_one.items():
        assert torch.allclose(of_both[name].to(value.dtype), value, atol=1e-5), name


@pytest.mark.parametrize("name", [None, "mobilenet_v3_small"])
def test_statistics_of_a_replicate_are_its_own_and_evaluation_leaves_them(name):
    options = {"batch_norm": True} if name is None else {"name": name}
    replicates = Replicates([modules(s, **options) for s in (11, 12)])
    alone = Replicates([modules(12, **options)])
    moving = [n for n in replicates.buffers if n.endswith("running_mean")]
    assert moving
    before = replicates.snapshot()
    with seeded(0), program_settings(validate=False):
        for kept in (replicates, alone):
            term = kept.template.stages[0].terms[0]
            with torch.no_grad():
                kept.losses(term, term.objective, (X, Y))
    of_one = alone.snapshot()
    first, other = replicates.buffers[moving[0]]
    assert not torch.allclose(first, other, rtol=0.1)
    for n in moving:
        assert not torch.equal(replicates.buffers[n], before[n])
        # mobilenet's dropout stands behind its last norm, so that draws move no statistics.
        assert torch.allclose(replicates.buffers[n][1], of_one[n][0], atol=1e-5)
    after = replicates.snapshot()
    with evaluating(replicates.template), program_settings(validate=False):
        term = replicates.template.stages[0].terms[0]
        replicates.losses(term, term.objective, (X, Y))
    for n, value in replicates.snapshot().items():
        assert torch.equal(value, after[n])


def frozen_statistics(make, **options):
    """The predictor's statistics after its own stage, and after the fit."""
    seen = []
    architecture = images((1, 5, 5), patches=3, blocks=(3,), levels=1, width=2, batch_norm=True)
    rows = (X, Y)
    fits = {"batch_size": 6, "valid": None, "progress": False, "seed": 0, **options}
    for epochs in (0, 3):
        system = make(architecture)

        def build(system=system, epochs=epochs):
            first, second = system.build()
            return [replace(first, epochs=2), replace(second, epochs=max(epochs, 1))]

        # The selector's stage is as long as it may be: nothing of the predictor may follow it.
        model = fit(System(build), rows, **fits).models[-1]
        part = getattr(model, "predictor", None) or model.surrogate
        seen.append({n: b.clone() for n, b in part.named_buffers()})
    return seen


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("make", [real_x, fastshap])
def test_a_predictor_that_is_not_learned_keeps_its_statistics(make, replicates):
    short, long = frozen_statistics(lambda a: make(a, classes=2), replicates=replicates)
    assert any(n.endswith("running_mean") for n in short)
    for name, value in short.items():
        assert torch.equal(value, long[name]), name


def mean_square_kept(reset):
    """Of the activations behind two convolutions, relative to what they take."""
    with initial_weights(0):
        block = ConvolutionBlock(32, 64, 2)
        for layer in block.layers:
            reset(layer)
        x = torch.randn(4, 32, 16, 16)
    with torch.no_grad():
        # Without the border, where a part of what a filter sees is padding.
        return float(block(x)[..., 2:-2, 2:-2].square().mean() / x.square().mean())


def test_convolutions_let_the_signal_through_from_the_start():
    # A ReLU of N(0, 2) has mean square 1; over 4,600 weights it is known to a few percent.
    assert 0.8 < mean_square_kept(lambda layer: layer.reset_parameters()) < 1.2
    # The control: torch's own draw, of which a sixth is left by each layer.
    assert mean_square_kept(torch.nn.Conv2d.reset_parameters) < 0.1


def test_networks_start_from_a_fitted_predictor():
    architecture = images(
        (1, 8, 8), patches=4, blocks=(4, 8), levels=1, width=4, convolutions=1, pooled=True
    )
    fitted, x = architecture.predictor(3, seed=1), drawn(5, 1, 8, 8)
    started = architecture.starting_from(fitted)
    predictor, selector = started.predictor(3, seed=2), started.selector(4)
    assert torch.equal(predictor(x), fitted(x))
    assert predictor.last.weight is not fitted.last.weight
    for block, start in zip(selector.down, fitted.layers, strict=True):
        assert torch.equal(block.layers[0].weight, start.layers[0].weight)
    # What is of another size, and the architecture itself, are as before.
    assert started.predictor(2, seed=1).outputs == 2
    assert not torch.equal(architecture.predictor(3, seed=2)(x), fitted(x))
    wider = images((1, 8, 8), patches=4, levels=1, width=6).starting_from(fitted).selector(4)
    assert wider.down[0].layers[0].weight.shape[0] == 6


def test_a_pooled_network_reads_what_there_is_and_not_where():
    network = ConvolutionalNetwork((1, 32, 32), 2, (4, 8), pooled=True)
    shape, blank = drawn(1, 4, 4), torch.zeros(2, 1, 32, 32)
    blank[0, :, 12:16, 12:16], blank[1, :, 16:20, 12:16] = shape, shape
    first, second = network(blank)
    torch.testing.assert_close(first, second)
