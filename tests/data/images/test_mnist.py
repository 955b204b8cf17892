"""MNIST's files: read packed or not, refused by name, panels of them, and the real ones."""

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from lexppl.data import digits_pair, fashion_mnist, fashion_pair, mnist, switching_panels
from lexppl.data.images.mnist import read_idx
from tests.data.images.written import idx_bytes, number_of, real_data, write_idx, write_mnist


@pytest.mark.parametrize("packed", [True, False])
def test_files_are_read_packed_or_not(tmp_path, packed):
    write_mnist(tmp_path, train=40, test=20, packed=packed)
    data = mnist(tmp_path)
    assert data.event_shape == (1, 28, 28)
    assert [number_of(image) for image in data.pixels[:, 0]] == list(range(40))
    assert data.y.tolist() == [n % 10 for n in range(40)]
    assert data.class_names == tuple("0123456789")
    test = mnist(str(tmp_path), train=False)
    assert [number_of(image) for image in test.pixels[:, 0]] == list(range(1000, 1020))
    assert (data.target_name, data.name) == ("digit", "mnist")


def test_torchvision_reads_the_same(tmp_path, monkeypatch):
    write_mnist(tmp_path, packed=False)
    theirs = torchvision.datasets.MNIST(str(tmp_path))
    ours = mnist(tmp_path)
    assert torch.equal(ours.pixels[:, 0], theirs.data)
    assert torch.equal(ours.y, theirs.targets)
    write_mnist(tmp_path, "FashionMNIST", packed=False)
    assert list(fashion_mnist(tmp_path).class_names) == torchvision.datasets.FashionMNIST.classes


def test_an_unpacked_file_stands_before_a_packed_one(tmp_path):
    write_mnist(tmp_path, mark=1, packed=True)
    write_mnist(tmp_path, mark=2, packed=False)
    assert (mnist(tmp_path).pixels[:, 0, 27, 27] == 2).all()


def test_nothing_is_written(tmp_path):
    write_mnist(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    mnist(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_pairs_by_number_and_name(tmp_path):
    write_mnist(tmp_path, train=40)
    write_mnist(tmp_path, "FashionMNIST", train=40)
    pair = digits_pair(8, 3, tmp_path)
    assert pair.class_names == ("8", "3")
    assert [number_of(image) for image in pair.pixels[:, 0]] == [3, 8, 13, 18, 23, 28, 33, 38]
    assert pair.y.tolist() == [1, 0] * 4
    garments = fashion_pair("Pullover", "Shirt", tmp_path)
    assert [number_of(i) % 10 for i in garments.pixels[:, 0]] == [2, 6] * 4
    assert torch.equal(garments.pixels, fashion_pair(2, 6, tmp_path).pixels)
    with pytest.raises(ValueError, match="no class 'Pulover'; it has 'T-shirt/top', "):
        fashion_pair("Pulover", "Shirt", tmp_path)


def one_line(error):
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_with_where_to_get_it(tmp_path):
    with pytest.raises(
        ValueError,
        match=r"MNIST/raw/train-images-idx3-ubyte' nor .*\.gz'; get it "
        r"from https://ossci.*download=True",
    ) as error:
        mnist(tmp_path)
    one_line(error)
    write_mnist(tmp_path)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    assert len(mnist(tmp_path)) == 40
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte'"):
        mnist(tmp_path, train=False)
    with pytest.raises(ValueError, match=r"FashionMNIST/raw/.*http://fashion-mnist"):
        fashion_mnist(tmp_path)
    with pytest.raises(ValueError, match=r"root must be a folder that is there; it is .*nowhere"):
        mnist(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="root must be a folder that is there; it is None"):
        mnist(None)


def test_a_download_is_torchvisions_and_only_where_files_lack(tmp_path, monkeypatch):
    asked = []

    def downloading(root, download):
        asked.append((root, download))
        write_mnist(root, packed=False)

    monkeypatch.setattr(torchvision.datasets, "MNIST", downloading)
    assert len(mnist(tmp_path, download=True)) == 40
    assert len(mnist(tmp_path, download=True)) == 40
    assert asked == [(str(tmp_path), True)]


@pytest.mark.parametrize("error", [RuntimeError("no\nnetwork"), OSError("read-only")])
def test_a_download_that_fails_is_told_in_one_line(tmp_path, monkeypatch, error):
    def downloading(root, download):
        raise error

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", downloading)
    with pytest.raises(
        ValueError,
        match=r"FashionMNIST could not be downloaded \((no network|read"
        r"-only)\); get it by hand from http.* into '.*/FashionMNIST/raw'",
    ) as told:
        fashion_mnist(tmp_path, download=True)
    one_line(told)


WHOLE = idx_bytes(np.zeros((2, 28, 28)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (WHOLE[:-1], r"2 × 28 × 28 = 1,568 values; it holds 1,567: get it anew"),
        (WHOLE + b"0", "it holds 1,569"),
        (b"", "no idx file of bytes with 3 dimensions"),
        (WHOLE[:10], "no idx file"),
        (b"\0\0\x0d\x03" + WHOLE[4:], "no idx file of bytes"),
        (idx_bytes(np.zeros(2)), "no idx file of bytes with 3 dimensions"),
        (b"<html>not found</html>", "no idx file"),
    ],
)
def test_broken_files_are_refused_by_name(tmp_path, content, message):
    file = tmp_path / "images"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"images' .*{message}"):
        read_idx(file, 3)
    packed = tmp_path / "images.gz"
    packed.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=f"images.gz' .*{message}"):
        read_idx(packed, 3)


@pytest.mark.parametrize("spoil", [lambda b: b[:-9], lambda b: b"no gzip", lambda b: b[:40] + b"?"])
def test_a_packed_file_that_is_cut_off_is_refused_by_name(tmp_path, spoil):
    file = tmp_path / "images.gz"
    file.write_bytes(
        spoil(gzip.compress(idx_bytes(np.random.default_rng(0).integers(255, size=900))))
    )
    with pytest.raises(ValueError, match=r"images.gz' cannot be unpacked: .*; get it anew"):
        read_idx(file, 1)


def test_files_that_do_not_go_together_are_refused_by_name(tmp_path):
    write_mnist(tmp_path)
    raw = tmp_path / "MNIST" / "raw"
    write_idx(raw / "train-labels-idx1-ubyte.gz", np.arange(39) % 10)
    with pytest.raises(ValueError, match=r"train-images.*40 images and .*train-labels.* 39 labels"):
        mnist(tmp_path)
    write_idx(raw / "train-labels-idx1-ubyte.gz", np.arange(40) % 11)
    with pytest.raises(ValueError, match=r"train-labels.* labels 0 to 9; it holds 10"):
        mnist(tmp_path)
    write_idx(raw / "t10k-images-idx3-ubyte.gz", np.zeros((20, 14, 28)))
    with pytest.raises(
        ValueError, match=r"t10k-images.* 14 × 28 pixels; those of MNIST are 28 × 28"
    ):
        mnist(tmp_path, train=False)


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
                expected = torch.zeros(28, 28, dtype=torch.uint8)
                expected[0, 0], expected[0, 1], expected[27, 27] = number // 256, number % 256, mark
                assert torch.equal(image, expected)
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


@pytest.mark.smoke
def test_panels_are_the_seeds_and_leave_random_numbers_alone(both):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (
        switching_panels("mnist", both, rows=(20, 10, 10), seed=seed).train.pixels
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # noqa: NPY002


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"labelled": "cifar"}, "labelled must be one of 'mnist', 'fashion'; it is 'cifar'"),
        ({"rows": (290, 20, 10)}, "at most 300 in their first two"),
        ({"rows": (20, 20, 81)}, "at most 80 to judge"),
        ({"rows": (20, 20)}, r"three numbers.*they are \(20, 20\)"),
        ({"rows": (20, 0, 20)}, "each of rows must be a whole number of at least 1; it is 0"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_panels_that_are_refused(both, changed, message):
    given = {"labelled": "mnist", "root": both, "rows": (20, 10, 10)} | changed
    with pytest.raises(ValueError, match=message):
        switching_panels(**given)


def test_the_real_digits_and_garments():
    root = real_data("MNIST")
    real_data("FashionMNIST")
    train, test = mnist(root), mnist(root, train=False)
    assert (len(train), len(test)) == (60_000, 10_000)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert torch.bincount(train.y).tolist() == counts
    assert float(train.x.double().mean()) == pytest.approx(0.1307, abs=5e-5)
    assert len(digits_pair(3, 8, root)) == 6131 + 5851
    garments = fashion_mnist(root)
    assert float(garments.x.double().std()) == pytest.approx(0.3530, abs=5e-5)
    assert torch.bincount(fashion_pair("Pullover", "Shirt", root, train=False).y).tolist() == [
        1000,
        1000,
    ]


def test_the_real_panels_share_no_image():
    root = real_data("MNIST")
    parts = switching_panels("fashion", root, seed=0)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [
        48_000,
        12_000,
        10_000,
    ]
    left, right = halves(torch.cat([part.pixels for part in (parts.train, parts.valid)]))
    on_the_left = torch.cat([part.truth[:, :1, :1] for part in (parts.train, parts.valid)])
    of_label = torch.where(on_the_left, left, right)
    beside = torch.where(on_the_left, right, left)
    y = torch.cat([parts.train.y, parts.valid.y])

    factors = np.random.default_rng(0).integers(2**63, size=98, dtype=np.uint64)

    def codes(images):
        """A number for each image, the same for the same image."""
        words = np.ascontiguousarray(images.numpy()).reshape(len(images), 784).view(np.uint64)
        return words @ factors

    garments = fashion_mnist(root)
    ours, theirs = codes(of_label), codes(garments.pixels)
    assert (np.sort(ours) == np.sort(theirs)).all()
    assert (np.sort(codes(beside)) == np.sort(codes(mnist(root).pixels))).all()
    # A few garments are in the set twice, perhaps with two labels.
    assert (garments.y[np.argsort(theirs)] == y[np.argsort(ours)]).double().mean() > 0.999


def test_a_real_folder_is_unpacked_by_torchvision_as_it_is_read_here(tmp_path):
    root = real_data("MNIST")
    target = Path(tmp_path) / "MNIST" / "raw"
    target.mkdir(parents=True)
    for file in (root / "MNIST" / "raw").glob("*.gz"):
        shutil.copy(file, target)
    theirs = torchvision.datasets.MNIST(str(tmp_path), train=False, download=True)
    assert torch.equal(theirs.data, mnist(root, train=False).pixels[:, 0])
