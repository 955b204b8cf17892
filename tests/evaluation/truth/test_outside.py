"""The share of a selection outside its truth, by hand, and against the false discovery rate."""

import numpy as np
import pytest
import torch

from lexppl.evaluation import selection_scores, share_outside

TRUTH = torch.tensor([[1, 1, 0, 0, 0], [0, 0, 1, 1, 1]])
DRAWS = torch.tensor(
    [
        [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0]],
        [[1, 0, 1, 1, 0], [1, 1, 0, 0, 0]],
        [[0, 0, 0, 0, 0], [1, 1, 1, 1, 1]],
    ]
)


def test_by_hand():
    expected = torch.tensor([(0 + 2 / 3 + 1) / 3, (0 + 1 + 2 / 5) / 3], dtype=torch.float64)
    torch.testing.assert_close(share_outside(DRAWS, TRUTH), expected)
    generous = torch.tensor([(0 + 2 / 3 + 0) / 3, (0 + 1 + 2 / 5) / 3], dtype=torch.float64)
    torch.testing.assert_close(share_outside(DRAWS, TRUTH, empty=0.0), generous)


def test_means_by_hand():
    means = torch.tensor([[0.5, 0.25, 0.25, 0.0, 0.0], [0.1, 0.3, 0.6, 0.0, 0.0]])
    expected = torch.tensor([0.25, 0.4], dtype=torch.float64)
    torch.testing.assert_close(share_outside(means, TRUTH), expected, rtol=0, atol=1e-7)


def random_masks(draws, rows, entries, seed):
    generator = torch.Generator().manual_seed(seed)
    masks = torch.rand(draws, rows, entries, generator=generator) < 0.3
    truth = torch.rand(rows, entries, generator=generator) < 0.4
    truth[:, 0] = True
    return masks, truth


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("empty", [1.0, 0.0])
def test_its_mean_is_the_false_discovery_rate(seed, empty):
    masks, truth = random_masks(11, 40, 5, seed)
    assert (masks.sum(-1) == 0).any()
    fdr = selection_scores(masks, truth, empty_fdr=empty).fdr
    assert float(share_outside(masks, truth, empty).mean()) == pytest.approx(fdr, abs=1e-12)


def test_of_draws_of_one_size_the_means_say_the_same():
    generator = torch.Generator().manual_seed(0)
    places = torch.rand(30, 8, 12, generator=generator).argsort(-1)[..., :4]
    masks = torch.zeros(30, 8, 12).scatter(-1, places, 1.0)
    truth = random_masks(1, 8, 12, 0)[1]
    of_means = share_outside(masks.double().mean(0), truth)
    torch.testing.assert_close(share_outside(masks, truth), of_means)
    masks, truth = random_masks(30, 8, 12, 1)
    differ = share_outside(masks, truth) - share_outside(masks.double().mean(0), truth)
    assert differ.abs().max() > 0.01


def test_images_have_their_own_shape():
    masks, truth = random_masks(3, 6, 20, 0)
    flat = share_outside(masks, truth)
    assert torch.equal(share_outside(masks.view(3, 6, 4, 5), truth.view(6, 4, 5)), flat)
    one = share_outside(masks[0].view(6, 4, 5), truth.view(6, 4, 5))
    assert torch.equal(one, share_outside(masks[:1], truth))


def test_limits_and_types():
    truth = random_masks(1, 6, 20, 0)[1]
    assert (share_outside(truth, truth) == 0).all()
    assert (share_outside(~truth, truth) == 1).all()
    assert (share_outside(truth.half(), torch.zeros_like(truth)) == 1).all()
    everything = share_outside(torch.ones(6, 20), truth)
    np.testing.assert_allclose(everything, 1 - truth.double().mean(1), atol=1e-12)
    # The least positive float32 is a selection too, and keeps its place.
    least = torch.zeros(6, 20)
    least[:, 1] = 1e-45
    assert torch.equal(share_outside(least, truth), 1 - truth[:, 1].double())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"masks": DRAWS[..., :4]}, r"shape \(2, 5\), .* they have \(3, 2, 4\)"),
        ({"masks": DRAWS[:0]}, r"they have \(0, 2, 5\)"),
        ({"masks": DRAWS[0, 0]}, "masks must have shape"),
        ({"masks": DRAWS[None]}, "masks must have shape"),
        ({"masks": DRAWS * 2}, r"masks must lie in \[0, 1\]"),
        ({"masks": DRAWS * torch.nan}, r"masks must lie in \[0, 1\]"),
        ({"truth": TRUTH[0]}, r"truth must have shape \(N, G\)"),
        ({"truth": TRUTH * 0.5}, "truth must hold 0 and 1 only"),
        ({"empty": 1.5}, r"empty must be a share in \[0, 1\]; it is 1.5"),
    ],
)
def test_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        share_outside(**{"masks": DRAWS, "truth": TRUTH} | changed)
