"""Images as a data set: what is refused, floats and bytes, parts, and the truth of patches."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.infer import Trace_ELBO
from torch import nn

from lexppl import fit
from lexppl.data import DividedImages, ImageDataset
from lexppl.data.images import dataset as dataset_file

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


def test_floats_of_everything_have_a_bound(monkeypatch):
    data = ImageDataset(**parts_of())
    monkeypatch.setattr(dataset_file, "MOST_BYTES", 4 * data.pixels.numel())
    assert data.x.shape == (6, 3, 2, 4)
    monkeypatch.setattr(dataset_file, "MOST_BYTES", 4 * data.pixels.numel() - 1)
    again = ImageDataset(**parts_of())
    with pytest.raises(ValueError, match=r"6 images would take .* GiB.*take\(rows"):
        _ = again.x


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"pixels": np.zeros((6, 3, 2, 4))}, TypeError, "pixels must be a torch.Tensor"),
        ({"pixels": torch.zeros(6, 3, 2, 4).long()}, TypeError, "uint8 .* they are torch.int64"),
        ({"pixels": torch.zeros(6, 2, 4)}, ValueError, r"\(N, C, H, W\).* shape \(6, 2, 4\)"),
        ({"pixels": torch.zeros(0, 3, 2, 4)}, ValueError, r"shape \(0, 3, 2, 4\)"),
        ({"pixels": torch.full((6, 3, 2, 4), 1.5)}, ValueError, r"\[0, 1\]; .* \[1.5, 1.5\]"),
        ({"pixels": torch.full((6, 3, 2, 4), -0.1)}, ValueError, r"they lie in \[-0.1, -0.1\]"),
        ({"pixels": torch.full((6, 3, 2, 4), NAN)}, ValueError, "144 of them are NaN"),
        ({"y": torch.zeros(5).long()}, ValueError, r"y must have shape \(6,\).*\(5,\)"),
        ({"y": torch.zeros(6)}, TypeError, "y must be torch.long"),
        ({"y": torch.tensor([0, 1, 2, 3, 0, 0])}, ValueError, "labels 0 to 2.*it holds 0 to 3"),
        ({"y": torch.ones(6).long()}, ValueError, "one class only: every row is 'b'; at least"),
        ({"class_names": ("a",)}, ValueError, "at least two classes"),
        ({"class_names": ("a", "a", "b")}, ValueError, "class_names must differ.*'a'"),
        ({"truth": torch.ones(6, 2, 4)}, TypeError, "truth must be torch.bool; it is torch.float"),
        ({"truth": torch.ones(5, 2, 4).bool()}, ValueError, r"\(6, 2, 4\).*it has \(5, 2, 4\)"),
        ({"truth": torch.ones(6, 1, 4).bool()}, ValueError, r"it has \(6, 1, 4\)"),
        ({"truth": torch.ones(6, 4, 8).bool()}, ValueError, r"it has \(6, 4, 8\)"),
        ({"truth": torch.ones(6, 3, 2, 4).bool()}, ValueError, "truth must have shape"),
        ({"row_names": ("one",)}, ValueError, "row_names must have 6 names.*it has 1"),
    ],
)
def test_refused(changed, error, message):
    with pytest.raises(error, match=message):
        ImageDataset(**parts_of(**changed))


def test_what_it_says_of_itself():
    data = ImageDataset(**parts_of(truth=torch.ones(6, 1, 2).bool()), name="faces")
    assert repr(data).splitlines() == [
        "ImageDataset 'faces': 6 images",
        "  images  3 × 2 × 4, uint8, cpu",
        "  y       class, 3 classes: a (2), b (2), c (2)",
        "  truth   known for each patch of 2 × 2 pixels",
    ]


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("index", "places"),
    [
        ([4, 0], [4, 0]),
        (torch.tensor([False, True] * 3), [1, 3, 5]),
        ([True, False, False, False, False, False], [0]),
        (slice(1, None, 2), [1, 3, 5]),
        ([-1], [5]),
        (2, [2]),
    ],
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


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (("a",), "two or more different"),
        (("a", "a"), "two or more different"),
        (("a", 0), "two or more different"),
        (("a", "d"), "no class 'd'; it has 'a', 'b', 'c'"),
        (("a", 3), "no class 3"),
        (("a", -1), "no class -1"),
    ],
)
def test_classes_that_are_refused(classes, message):
    with pytest.raises(ValueError, match=message):
        ImageDataset(**parts_of()).only(*classes)


def many(rows=90):
    numbers = torch.arange(rows)
    pixels = numbers.to(torch.uint8).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2)
    return ImageDataset(pixels, (numbers % 30 == 0).long(), ("usual", "rare"))


@pytest.mark.parametrize("seed", range(5))
def test_some_rows_have_every_class_and_keep_their_order(seed):
    taken = many().take(5, seed=seed)
    numbers = taken.pixels[:, 0, 0, 0].tolist()
    assert len(set(numbers)) == 5
    assert numbers == sorted(numbers)
    assert set(taken.y.tolist()) == {0, 1}
    assert torch.equal(taken.pixels, many().take(5, seed=seed).pixels)
    assert many(3).take(5, seed=seed).pixels.shape[0] == 3


def truth_of_patches(truth, side):
    """Patch by patch, by counting."""
    rows, height, width = truth.shape
    found = []
    for row in range(0, height, side):
        for column in range(0, width, side):
            patch = truth[:, row : row + side, column : column + side].reshape(rows, -1)
            found.append(2 * patch.sum(1) > patch.shape[1])
    return torch.stack(found, 1)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 5, 9])
def test_truth_of_patches_by_counting(side):
    truth = torch.rand(7, 5, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    data = ImageDataset(torch.zeros(7, 1, 5, 9), torch.arange(7) % 2, ("a", "b"), truth)
    assert torch.equal(data.entry_truth(side), truth_of_patches(truth, side))


def test_truth_of_patches_of_a_truth_of_patches():
    truth = torch.rand(7, 4, 4, generator=torch.Generator().manual_seed(0)) < 0.5
    data = ImageDataset(torch.zeros(7, 1, 8, 8), torch.arange(7) % 2, ("a", "b"), truth)
    assert data.truth_patch == 2
    assert torch.equal(data.entry_truth(2), truth.flatten(1))
    assert torch.equal(data.entry_truth(4), truth_of_patches(truth, 2))
    with pytest.raises(ValueError, match=r"multiple of 2.*it is 3"):
        data.entry_truth(3)
    with pytest.raises(ValueError, match="no known truth"):
        many().entry_truth()


def test_parts_must_be_of_one_kind():
    train, test = many().split(0.5, 0.5, seed=0)
    assert DividedImages(train, None, test).to("cpu").valid is None
    with pytest.raises(ValueError, match=r"test must have the class_names of train, \('usual', "):
        DividedImages(train, None, ImageDataset(test.pixels, test.y, ("a", "b")))
    larger = ImageDataset(torch.zeros(2, 1, 3, 3), torch.tensor([0, 1]), train.class_names)
    with pytest.raises(ValueError, match=r"valid must have the event_shape .*it has \(1, 3, 3\)"):
        DividedImages(train, larger, test)


class Plain(nn.Module):
    """Labels by a linear map of the pixels; it looks at what it is given."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x, y=None):
        assert x.dtype == torch.float32
        assert x.shape[1:] == (1, 2, 2)
        assert x.max() <= 1
        with pyro.plate("data", len(x), dim=-1):
            pyro.sample("y", dist.Categorical(logits=self.linear(x.flatten(1))), obs=y)


def test_a_fit_takes_the_images():
    result = fit(Plain(), many(), objective=Trace_ELBO(), valid=None, epochs=2, progress=False)
    assert np.isfinite(result.history.train).all()
