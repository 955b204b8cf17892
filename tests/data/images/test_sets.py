"""Image sets: MNIST's files packed or not, panels of them, and what is refused."""

import re

import numpy as np
import pytest
import torch

from lexppl.choices.data_sets import IMAGE_SETS, image_names
from lexppl.data import image_set, mnist
from lexppl.data.named_sets import fashion_mnist, switching_panels
from tests import needs
from tests.data.images.written import number_of, real_data, write_idx, write_mnist
from tests.refusals import over, refused


@pytest.mark.parametrize("packed", [True, False])
def test_files_are_read_packed_or_not_and_nothing_is_written(tmp_path, packed):
    write_mnist(tmp_path, mark=1, packed=True)
    write_mnist(tmp_path, packed=packed)
    before = sorted(tmp_path.rglob("*"))
    data = mnist(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert [number_of(image) for image in data.pixels[:, 0]] == list(range(40))
    # An unpacked file stands before a packed one.
    assert not data.pixels[:, 0, 27, 27].any()
    assert data.y.tolist() == [n % 10 for n in range(40)]
    test = mnist(str(tmp_path), train=False)
    assert [number_of(image) for image in test.pixels[:, 0]] == list(range(1000, 1020))


def test_torchvision_reads_the_same(tmp_path):
    torchvision = needs.torchvision()
    write_mnist(tmp_path, packed=False)
    theirs, ours = torchvision.datasets.MNIST(str(tmp_path)), mnist(tmp_path)
    assert torch.equal(ours.pixels[:, 0], theirs.data) and torch.equal(ours.y, theirs.targets)
    write_mnist(tmp_path, "FashionMNIST", packed=False)
    garments = fashion_mnist(tmp_path)
    assert list(garments.class_names) == torchvision.datasets.FashionMNIST.classes


def test_a_download_is_torchvisions_and_only_where_files_lack(tmp_path, monkeypatch):
    torchvision, calls = needs.torchvision(), []

    def downloading(root, download):
        calls.append((root, download))
        write_mnist(root, packed=False)

    monkeypatch.setattr(torchvision.datasets, "MNIST", downloading)
    assert len(mnist(tmp_path, download=True)) == len(mnist(tmp_path, download=True)) == 40
    assert calls == [(str(tmp_path), True)]


@over(
    ("labels-idx1", np.arange(39) % 10),
    ("labels-idx1", np.arange(40) % 11),
    ("images-idx3", np.zeros((40, 14, 27))),
    ("images-idx3", None),
    ("images-idx3", b"no gzip"),
)
def test_files_that_are_missing_or_broken_are_refused(file, values, tmp_path):
    write_mnist(tmp_path)
    path = tmp_path / f"MNIST/raw/train-{file}-ubyte.gz"
    path.unlink()
    if isinstance(values, bytes):
        path.write_bytes(values)
    elif values is not None:
        write_idx(path, values)
    refused(r"raw' cannot be read: .*get it from tor|labels 0 to 9", mnist, tmp_path)
    refused("folder that is there; it is 'None'", mnist, None)


MARKS = {"mnist": 7, "fashion": 9}


@pytest.fixture
def both(tmp_path):
    write_mnist(tmp_path, "MNIST", train=300, test=90, mark=MARKS["mnist"])
    write_mnist(tmp_path, "FashionMNIST", train=310, test=80, mark=MARKS["fashion"])
    return tmp_path


def halves(images):
    return images[:, 0, :, :28], images[:, 0, :, 28:]


@pytest.mark.parametrize("labelled", MARKS)
def test_each_panel_stands_once_beside_one_of_the_other_set(both, labelled):
    parts = switching_panels(labelled, both, rows=(200, 60, 40), seed=0)
    used = {"mnist": [], "fashion": []}
    for part, count in ((parts.train, 200), (parts.valid, 60), (parts.test, 40)):
        assert part.pixels.shape == (count, 1, 28, 56)
        assert part.truth.shape == (count, 28, 56)
        left, right = halves(part.pixels)
        for row in range(count):
            marks = [int(left[row, 27, 27]), int(right[row, 27, 27])]
            assert sorted(marks) == [7, 9]
            for name, mark in MARKS.items():
                image = (left, right)[marks.index(mark)][row]
                number = number_of(image)
                used[name].append(number)
                assert (number >= 1000) == (part is parts.test)
                if name == labelled:
                    assert part.y[row] == number % 1000 % 10
                    inside = torch.zeros(28, 56, dtype=torch.bool)
                    inside[:, :28] = marks[0] == mark
                    inside[:, 28:] = marks[1] == mark
                    assert torch.equal(part.truth[row], inside)
    assert all(len(set(numbers)) == 300 for numbers in used.values())
    names = {"mnist": ("0", "digit"), "fashion": ("T-shirt/top", "garment")}[labelled]
    assert (parts.test.class_names[0], parts.test.target_name) == names


def test_panels_are_in_random_order_and_their_pairs_random(both):
    parts = switching_panels("mnist", both, rows=(200, 60, 40), seed=0)
    on_the_left = torch.cat([part.truth[:, 0, 0] for part in (parts.train, parts.valid)]).double()
    # 260 fair coins: 4.5 standard deviations.
    assert abs(float(on_the_left.mean()) - 0.5) < 4.5 * 0.5 / 260**0.5
    left, right = halves(parts.train.pixels)
    pairs = np.array([(number_of(a), number_of(b)) for a, b in zip(left, right, strict=True)])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4.5 / 200**0.5
    sides, labels = parts.train.truth[:, 0, 0].numpy(), parts.train.y.numpy()
    assert abs(np.corrcoef(sides, labels)[0, 1]) < 4.5 / 200**0.5


@over(
    ({"labelled": "cifar"}, "labelled must be one of .*'mnist', 'fashion'.*; it is 'cifar'"),
    ({"rows": (290, 20, 10)}, "at most 300 in their first two"),
    ({"rows": (20, 20, 81)}, "at most 80 to judge"),
    ({"rows": (20, 20)}, r"three numbers.*they are \(20, 20\)"),
    ({"rows": (20, 0, 20)}, "each of rows must be a whole number of at least 1; it is 0"),
    ({"seed": -1}, "seed must be"),
)
def test_panels_that_are_refused(changed, message, both):
    given = {"labelled": "mnist", "root": both, "rows": (20, 10, 10)} | changed
    refused(message, switching_panels, **given)


def test_the_real_digits_and_garments():
    root = real_data("MNIST")
    real_data("FashionMNIST")
    train, test = mnist(root), mnist(root, train=False)
    assert (len(train), len(test)) == (60_000, 10_000)
    assert float(train.x.double().mean()) == pytest.approx(0.1307, abs=5e-5)
    assert len(train.only(3, 8)) == 6131 + 5851
    garments = fashion_mnist(root, train=False).only("Pullover", "Shirt")
    assert torch.bincount(garments.y).tolist() == [1000, 1000]
    parts = image_set("mnist_3_8", root)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [9586, 2396, 1984]


@pytest.mark.parametrize("name", image_names())
def test_a_set_is_what_is_known_of_it(both, monkeypatch, name):
    defaults = {"rows": (150, 50, 40), "seed": 0, "download": False}
    monkeypatch.setattr(switching_panels, "__kwdefaults__", defaults)
    known, parts = IMAGE_SETS[name], image_set(name, both, seed=1)
    train = parts.train
    assert train.event_shape == known.shape
    assert train.n_classes == (2 if name.endswith(("_8", "shirt")) else 10)
    assert (train.truth is None) != name.startswith("panels")
    assert all((both / file).exists() for file in known.files)
    if re.fullmatch("(fashion_)?mnist", name):
        counts = [len(part) for part in (train, parts.valid)]
        assert counts == ([248, 62] if name == "fashion_mnist" else [240, 60])
        assert set(torch.bincount(parts.valid.y).tolist()) <= {6, 7}
    again, capped = image_set(name, both, seed=1), image_set(name, both, rows=2)
    assert torch.equal(parts.valid.pixels, again.valid.pixels)
    assert {len(part) for part in (capped.train, capped.valid, capped.test)} == {2}


def test_other_names_are_refused(tmp_path):
    refused("an image set must be one of .'mnist', 'fashion_m", image_set, "cifar", tmp_path)
    refused("rows must be", image_set, "mnist", tmp_path, rows=0)
