"""The box of a mouth against an independent test of points in polygons."""

import numpy as np
import pytest
import torch
from matplotlib.path import Path

from lexppl.data.images.celeba import mouth_box


def by_polygon(corners, side, patch, width, height):
    """Patches whose centre lies in the polygon, and those where rounding decides."""
    a, b = np.asarray(corners, dtype=float)
    along = (b - a) / 2
    across = np.array([-along[1], along[0]])
    middle = (a + b) / 2
    box = [
        middle + i * width * along + j * height * across
        for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    centres = np.arange(0, side, patch) + (patch - 1) / 2
    points = np.array([(x, y) for y in centres for x in centres])
    # Which of the two is the larger polygon depends on its sense of rotation.
    inner, outer = (
        Path([*box, box[0]], closed=True).contains_points(points, radius=radius)
        for radius in (-1e-6, 1e-6)
    )
    count = len(centres)
    return (inner & outer).reshape(count, count), (inner ^ outer).reshape(count, count)


@pytest.mark.parametrize("seed", range(40))
def test_rotated_mouths_against_a_polygon(seed):
    generator = np.random.default_rng(seed)
    corners = generator.uniform(-10, 138, size=(2, 2))
    width, height = generator.uniform(0.3, 3, size=2)
    side, patch = [(128, 4), (128, 1), (60, 5)][seed % 3]
    box = mouth_box(torch.from_numpy(corners)[None], side, patch, width=width, height=height)[0]
    inside, on_edge = by_polygon(corners, side, patch, width, height)
    assert box.shape == inside.shape
    assert (box.numpy() == inside)[~on_edge].all()
    assert on_edge.sum() <= 4


def test_many_mouths_are_each_for_themselves():
    generator = torch.Generator().manual_seed(0)
    corners = 128 * torch.rand(9, 2, 2, generator=generator)
    boxes = mouth_box(corners, 128, 4)
    assert boxes.shape == (9, 32, 32)
    assert boxes.dtype == torch.bool
    for box, one in zip(boxes, corners, strict=True):
        assert torch.equal(box, mouth_box(one[None], 128, 4)[0])
    assert boxes.flatten(1).any(1).all()


def test_a_level_mouth_by_hand():
    # From column 40 to 80: columns 40 … 80, and with twice the length, rows 50 … 130 round row 90.
    box = mouth_box(torch.tensor([[[40.0, 90.0], [80.0, 90.0]]]), 128)[0]
    expected = torch.zeros(128, 128, dtype=torch.bool)
    expected[50:131, 40:81] = True
    assert torch.equal(box, expected)
    # Of patches of 4, centres are 1.5, 5.5, …: columns 41.5 … 77.5 and rows 53.5 … 125.5 are
    # within, row 49.5 is not.
    patches = mouth_box(torch.tensor([[[40.0, 90.0], [80.0, 90.0]]]), 128, 4)[0]
    expected = torch.zeros(32, 32, dtype=torch.bool)
    expected[13:32, 10:20] = True
    assert torch.equal(patches, expected)


def test_an_upright_mouth_is_the_level_one_turned():
    level = mouth_box(torch.tensor([[[40.0, 63.5], [80.0, 63.5]]]), 128)[0]
    upright = mouth_box(torch.tensor([[[63.5, 40.0], [63.5, 80.0]]]), 128)[0]
    assert torch.equal(upright, level.T)
    assert not torch.equal(upright, level)


def test_the_order_of_the_corners_does_not_matter():
    corners = torch.tensor([[[31.0, 80.0], [77.0, 96.0]]])
    assert torch.equal(mouth_box(corners, 128), mouth_box(corners.flip(1), 128))


def test_the_area_is_that_of_the_box():
    corners = torch.tensor([[[48.0, 60.0], [72.0, 67.0]]])
    # 24² + 7² = 25²; pixels on the edge are within about half a pixel of the perimeter.
    area = float(mouth_box(corners, 128).sum())
    assert abs(area - 2 * 25**2) < 0.5 * 6 * 25


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"corners": torch.zeros(2, 2)}, r"\(N, 2, 2\); they have \(2, 2\)"),
        ({"corners": torch.zeros(1, 2, 2)}, "two different points"),
        ({"corners": torch.full((1, 2, 2), torch.nan)}, "finite"),
        ({"patch": 5}, "patch must divide the side, 128; it is 5"),
        ({"width": 0.0}, "width must be a finite number above 0"),
        ({"height": -1.0}, "height must be a finite number above 0"),
    ],
)
def test_refused(changed, message):
    given = {"corners": torch.tensor([[[0.0, 0.0], [1.0, 1.0]]]), "side": 128} | changed
    with pytest.raises(ValueError, match=message):
        mouth_box(**given)
