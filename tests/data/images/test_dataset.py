"""Images as a data set: what is refused, floats and bytes, parts, and the truth of patches."""

import numpy as np
import pytest
import torch

from lexppl.data.images import DividedImages, ImageDataset
from tests.refusals import over, refusals

NAN = float("nan")


def parts_of(**changed):
    pixels = torch.arange(6 * 3 * 2 * 4).reshape(6, 3, 2, 4).to(torch.uint8)
    given = {"pixels": pixels, "y": torch.tensor([0, 1, 2, 0, 1, 2]), "class_names": tuple("abc")}
    return given | changed


def test_bytes_are_kept_and_floats_made_of_them():
    data = ImageDataset(**parts_of())
    assert data.pixels.dtype == torch.uint8
    assert (data.event_shape, data.n_classes, data.task, len(data)) == (
        (3, 2, 4),
        3,
        "classification",
        6,
    )
    expected = np.arange(144, dtype=np.float64).reshape(6, 3, 2, 4) / 255
    torch.testing.assert_close(data.x.double(), torch.from_numpy(expected), rtol=0, atol=1e-7)
    assert data.x.dtype == torch.float32
    assert data.x is data.x
    floats = ImageDataset(**parts_of(pixels=data.x))
    assert floats.x is floats.pixels


test_refused = refusals(
    ({"pixels": np.zeros((6, 3, 2, 4))}, TypeError, "pixels must be a torch.Tensor"),
    ({"pixels": torch.zeros(6, 3, 2, 4).long()}, TypeError, "uint8 .* they are torch.int64"),
    ({"pixels": torch.zeros(6, 2, 4)}, ValueError, r"\(N, C, H, W\).* shape is \(6, 2, 4\)"),
    ({"pixels": torch.zeros(0, 3, 2, 4)}, ValueError, r"the shape is \(0, 3, 2, 4\)"),
    ({"pixels": torch.full((6, 3, 2, 4), 1.5)}, ValueError, r"\[0, 1\]; .* \[1.5, 1.5\]"),
    ({"pixels": torch.full((6, 3, 2, 4), -0.1)}, ValueError, r"they lie in \[-0.1, -0.1\]"),
    ({"pixels": torch.full((6, 3, 2, 4), NAN)}, ValueError, r"they lie in \[nan, nan\]"),
    ({"y": torch.zeros(5).long()}, ValueError, r"y must have shape \(6,\).*\(5,\)"),
    ({"y": torch.zeros(6)}, TypeError, "y must be torch.long"),
    ({"y": torch.tensor([0, 1, 2, 3, 0, 0])}, ValueError, "labels 0 to 2.*it holds 0 to 3"),
    ({"y": torch.ones(6).long()}, ValueError, "one class only: every row is 'b'"),
    ({"class_names": ("a",)}, ValueError, "at least two classes"),
    ({"class_names": ("a", "a", "b")}, ValueError, "class_names must differ.*'a'"),
    ({"truth": torch.ones(6, 2, 4)}, ValueError, "truth must be torch.bool; it is torch.float"),
    ({"truth": torch.ones(5, 2, 4).bool()}, ValueError, r"\(6, 2, 4\).* \(5, 2, 4\)"),
    ({"row_names": ("one",)}, ValueError, r"row_names must have shape \(6,\).*\(1,\)"),
    of=lambda changed: ImageDataset(**parts_of(**changed)),
)


@pytest.mark.smoke
@over(
    ([4, 0], [4, 0]),
    (torch.tensor([False, True] * 3), [1, 3, 5]),
    ([True, False, False, False, False, False], [0]),
    (slice(1, None, 2), [1, 3, 5]),
    ([-1], [5]),
    (2, [2]),
)
def test_a_subset_keeps_everything_of_its_rows(index, places):
    truth = torch.rand(6, 2, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    data = ImageDataset(**parts_of(truth=truth, row_names=tuple("uvwxyz")))
    part = data.subset(index)
    assert torch.equal(part.pixels, data.pixels[places])
    assert torch.equal(part.y, data.y[places])
    assert torch.equal(part.truth, truth[places])
    assert part.row_names == tuple("uvwxyz"[place] for place in places)
    assert part.is_part


def test_some_classes_alone_become_the_first():
    data = ImageDataset(**parts_of())
    for pair in (data.only("c", "a"), data.only(2, 0), data.only(np.int64(2), 0)):
        assert pair.class_names == ("c", "a")
        assert pair.y.tolist() == [1, 0, 1, 0]
        assert torch.equal(pair.pixels, data.pixels[[0, 2, 3, 5]])
    digits = ImageDataset(**parts_of(class_names=("1", "2", "0")))
    assert digits.only("0", "1").class_names == ("0", "1")
    assert digits.only(0, 1).class_names == ("1", "2")


test_classes_that_are_refused = refusals(
    (("a",), "two or more different"),
    (("a", "a"), "two or more different"),
    (("a", 0), "two or more different"),
    (("a", "d"), "no class 'd'; it has 'a', 'b', 'c'"),
    (("a", 3), "no class 3"),
    (("a", -1), "no class -1"),
    of=lambda classes: ImageDataset(**parts_of()).only(*classes),
)


def many(rows=90):
    numbers = torch.arange(rows)
    pixels = numbers.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageDataset(pixels, (numbers % 30 == 0).long(), ("usual", "rare"))


@pytest.mark.parametrize("seed", range(2))
def test_some_rows_have_every_class_and_keep_their_order(seed):
    taken = many().take(5, seed=seed)
    numbers = taken.pixels[:, 0, 0, 0].tolist()
    assert len(set(numbers)) == 5
    assert numbers == sorted(numbers)
    assert set(taken.y.tolist()) == {0, 1}
    assert torch.equal(taken.pixels, many().take(5, seed=seed).pixels)
    assert many(3).take(5, seed=seed).pixels.shape[0] == 3


def test_parts_must_be_of_one_kind():
    train, test = many().split(0.5, 0.5, seed=0)
    assert DividedImages(train, None, test).to("cpu").valid is None
    with pytest.raises(ValueError, match=r"test must have train's class_names, \('usual', "):
        DividedImages(train, None, ImageDataset(test.pixels, test.y, ("a", "b")))
    larger = ImageDataset(torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]), train.class_names)
    with pytest.raises(
        ValueError, match=r"valid must have train's event_shape, .*it has \(1, 3, 3\)"
    ):
        DividedImages(train, larger, test)
