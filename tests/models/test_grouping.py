"""Groupings: which values of a row an entry keeps, in rows of any shape."""

from math import prod

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lexppl.models import Grouping, images
from lexppl.models.grouping import slic_segments
from lexppl.saving.description import describe, rebuild
from tests.refusals import refusals, refused

SMALL = st.integers(1, 7)


@settings(deadline=None, max_examples=60)
@given(SMALL, SMALL, st.integers(1, 3), SMALL)
def test_patches_are_squares_counted_from_the_upper_left(height, width, channels, size):
    size = min(size, max(height, width))
    grouping = Grouping.patches((channels, height, width), size)
    rows, columns = -(-height // size), -(-width // size)
    assert grouping.entries == rows * columns
    assert grouping.event_shape == (channels, height, width)
    assert grouping.features == channels * height * width
    assert len(grouping.groups) == height * width
    for entry, name in enumerate(grouping.names):
        kept = grouping(torch.eye(grouping.entries)[entry])
        row, column = divmod(entry, columns)
        expected = torch.zeros(channels, height, width)
        expected[:, row * size : (row + 1) * size, column * size : (column + 1) * size] = 1.0
        assert torch.equal(kept, expected)
        assert name == f"r{row + 1} c{column + 1}"


@pytest.mark.smoke
@pytest.mark.parametrize(
    "grouping",
    [
        Grouping([1, 0, 0]),
        Grouping.identity(3),
        Grouping.patches((2, 3, 5), 2),
        Grouping.patches((2, 3, 5), 1),
        Grouping.superpixels(torch.tensor([[4, 4, 1], [0, 1, 1]]), channels=3),
        Grouping(range(12), event_shape=(3, 2, 2)),
        Grouping([0, 1, 1, 0, 2, 2], event_shape=(2, 3)),
        Grouping.time_by_feature((5, 3), window=2),
        Grouping.words(4),
    ],
)
def test_masks_and_sums_follow_the_index(grouping):
    assert prod(grouping.event_shape) == grouping.features == len(grouping.index)
    masks = torch.rand(2, 4, grouping.entries, generator=torch.Generator().manual_seed(0))
    masks.requires_grad_()
    kept = grouping(masks)
    assert kept.shape == (2, 4, *grouping.event_shape)
    assert torch.equal(kept.flatten(2), masks[..., grouping.index])
    values = torch.rand(2, *grouping.event_shape, generator=torch.Generator().manual_seed(1))
    one_hot = torch.eye(grouping.entries)[grouping.index]
    assert torch.allclose(grouping.sums(values), values.flatten(1) @ one_hot)
    kept.sum().backward()
    expected = grouping.index.bincount().expand_as(masks).to(masks.dtype)
    assert torch.equal(masks.grad, expected)
    again = rebuild(describe(grouping))
    assert torch.equal(again.index, grouping.index)
    assert (again.names, again.event_shape) == (grouping.names, grouping.event_shape)
    assert again.groups == grouping.groups


def test_cells_of_a_series_are_windows_of_a_feature():
    grouping = Grouping.time_by_feature((3, 2), window=2, names=["pulse", "pressure"])
    assert grouping.names == ("t1-2 pulse", "t1-2 pressure", "t3 pulse", "t3 pressure")
    assert torch.equal(
        grouping(torch.tensor([1.0, 0.0, 0.0, 0.0])),
        torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]),
    )


def test_slic_finds_segments_that_are_alike():
    skimage = pytest.importorskip("skimage")
    assert skimage is not None
    image = torch.zeros(3, 12, 12)
    image[:, :, 5:] = 1.0
    segments = slic_segments(image, 9, compactness=0.01)
    assert segments.shape == (12, 12)
    for s in segments.unique():
        assert len(image[0][segments == s].unique()) == 1
    grouping = Grouping.superpixels(segments, channels=3)
    assert grouping.event_shape == (3, 12, 12)
    refused(r"in \[0, 1\]; it is 0 to 255", slic_segments, image * 255.0, 9)
    refused("channels first", slic_segments, image[0], 9)


test_what_is_no_grouping_is_refused = refusals(
    (lambda: Grouping.patches((4, 4), 2), r"must be \(C, H, W\), channels first"),
    (lambda: Grouping.patches(4, 2), "must be a shape"),
    (lambda: Grouping.patches((1, 4, 0), 2), "a size of the shape of an image"),
    (lambda: Grouping.patches((1, 4, 4), 0), "size must be a whole number of at least 1"),
    (lambda: Grouping.patches((1, 4, 6), 7), "size must be at most 6.*4 × 6 pixels; it is 7"),
    (lambda: images((1, 8, 8), patches=20), "patches must be at most 8.*it is 20"),
    (lambda: Grouping.superpixels(torch.zeros(1, 2, 2)), r"segments must have shape \(H, W\)"),
    (lambda: Grouping.superpixels([[0.5, 1.0]]), "whole numbers; some are fractions"),
    (lambda: Grouping([0, 1, 2], event_shape=(1, 2, 2)), "groups must be 4 for rows.*or 4"),
    (lambda: Grouping([0, 1], event_shape=(3,)), "groups must be 3 for rows"),
    (lambda: Grouping([0], event_shape=()), "must have a dimension"),
    (lambda: Grouping.time_by_feature((3,)), r"shape must be \(T, F\)"),
    (lambda: Grouping.time_by_feature((3, 2), names=["a"]), r"names must have shape \(2,\)"),
    (lambda: Grouping.words(0), "length must be a whole number"),
)
