"""Image sets: MNIST's files packed or not, panels of them, CelebA's smiles, and what is refused."""

import gzip
import re

import numpy as np
import pytest
import torch
import torchvision
from matplotlib.path import Path as Polygon
from torchvision.datasets import CelebA

from lexppl.choices.data_sets import IMAGE_SETS, image_names
from lexppl.data import fashion_mnist, image_set, mnist, switching_panels
from lexppl.data.images.sets import celeba_smile, mouth_box
from tests.data.images.written import (
    idx_bytes,
    number_of,
    real_data,
    write_idx,
    write_mnist,
    write_picture,
)


@pytest.mark.parametrize("packed", [True, False])
def test_files_are_read_packed_or_not_and_nothing_is_written(tmp_path, packed):
    write_mnist(tmp_path, mark=1, packed=True)
    write_mnist(tmp_path, packed=packed)
    before = sorted(tmp_path.rglob("*"))
    data = mnist(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before
    assert data.event_shape == (1, 28, 28)
    assert [number_of(image) for image in data.pixels[:, 0]] == list(range(40))
    # An unpacked file stands before a packed one.
    assert not data.pixels[:, 0, 27, 27].any()
    assert data.y.tolist() == [n % 10 for n in range(40)]
    assert (data.class_names, data.target_name) == (tuple("0123456789"), "digit")
    test = mnist(str(tmp_path), train=False)
    assert [number_of(image) for image in test.pixels[:, 0]] == list(range(1000, 1020))


def test_torchvision_reads_the_same(tmp_path):
    write_mnist(tmp_path, packed=False)
    theirs, ours = torchvision.datasets.MNIST(str(tmp_path)), mnist(tmp_path)
    assert torch.equal(ours.pixels[:, 0], theirs.data) and torch.equal(ours.y, theirs.targets)
    write_mnist(tmp_path, "FashionMNIST", packed=False)
    garments = fashion_mnist(tmp_path)
    assert list(garments.class_names) == torchvision.datasets.FashionMNIST.classes
    pair = garments.only("Pullover", "Shirt")
    assert [number_of(i) % 10 for i in pair.pixels[:, 0]] == [2, 6] * 4


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"raw/train-images-idx3-ubyte' nor .*\.gz.*download=True"):
        mnist(tmp_path)
    write_mnist(tmp_path)
    (tmp_path / "MNIST/raw/t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte'"):
        mnist(tmp_path, train=False)
    for root in (tmp_path / "nowhere", None):
        with pytest.raises(ValueError, match=r"folder that is there; it is '.*(None|nowhere)'"):
            mnist(root)


def test_a_download_is_torchvisions_and_only_where_files_lack(tmp_path, monkeypatch):
    calls = []

    def downloading(root, download):
        calls.append((root, download))
        write_mnist(root, packed=False)

    monkeypatch.setattr(torchvision.datasets, "MNIST", downloading)
    assert len(mnist(tmp_path, download=True)) == len(mnist(tmp_path, download=True)) == 40
    assert calls == [(str(tmp_path), True)]

    def failing(root, download):
        raise RuntimeError("no\nnetwork")

    monkeypatch.setattr(torchvision.datasets, "FashionMNIST", failing)
    with pytest.raises(ValueError, match=r"get FashionMNIST in '.*' \(no network\).*by hand$"):
        fashion_mnist(tmp_path, download=True)


WHOLE = idx_bytes(np.zeros((40, 28, 28)))
BROKEN = {
    "short": WHOLE[:-1],
    "long": WHOLE + b"0",
    "empty": b"",
    "head": WHOLE[:10],
    "type": b"\0\0\x0d\x03" + WHOLE[4:],
    "html": b"<html>not found</html>",
}


@pytest.mark.parametrize("name", [*BROKEN, "cut", "not gzip"])
def test_broken_files_are_refused_by_name(tmp_path, name):
    write_mnist(tmp_path)
    file = tmp_path / "MNIST/raw/train-images-idx3-ubyte.gz"
    packed = {"cut": gzip.compress(WHOLE)[:-9], "not gzip": b"no gzip"}
    file.write_bytes(packed.get(name) or gzip.compress(BROKEN[name]))
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz' cannot be read: .*anew"):
        mnist(tmp_path)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("labels-idx1", np.arange(39) % 10, r"it holds \(40, 28, 28\), and there are \(39,\) lab"),
        ("labels-idx1", np.arange(40) % 11, "labels 0 to 9.*it holds 0 to 10"),
        ("images-idx3", np.zeros((40, 14, 28)), r"28 × 28 pixels .*it holds \(40, 14, 28\)"),
        ("images-idx3", np.zeros(40), r"it holds \(40,\)"),
    ],
)
def test_files_that_do_not_go_together_are_refused(tmp_path, file, values, message):
    write_mnist(tmp_path)
    write_idx(tmp_path / f"MNIST/raw/train-{file}-ubyte.gz", values)
    with pytest.raises(ValueError, match=message):
        mnist(tmp_path)


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
    assert float(train.x.double().mean()) == pytest.approx(0.1307, abs=5e-5)
    assert len(train.only(3, 8)) == 6131 + 5851
    garments = fashion_mnist(root, train=False).only("Pullover", "Shirt")
    assert torch.bincount(garments.y).tolist() == [1000, 1000]
    parts = image_set("mnist_3_8", root)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [9586, 2396, 1984]


def by_polygon(corners, side, patch, width, height):
    """Patches whose centre lies in the polygon, and those where rounding decides."""
    a, b = np.asarray(corners, dtype=float)
    along = (b - a) / 2
    across = np.array([-along[1], along[0]])
    box = [
        (a + b) / 2 + i * width * along + j * height * across
        for i, j in ((-1, -1), (1, -1), (1, 1), (-1, 1))
    ]
    centres = np.arange(0, side, patch) + (patch - 1) / 2
    points = np.array([(x, y) for y in centres for x in centres])
    # Which of the two is the larger polygon depends on its sense of rotation.
    inner, outer = (
        Polygon([*box, box[0]], closed=True).contains_points(points, radius=radius)
        for radius in (-1e-6, 1e-6)
    )
    count = len(centres)
    return (inner & outer).reshape(count, count), (inner ^ outer).reshape(count, count)


@pytest.mark.parametrize("seed", range(12))
def test_rotated_mouths_against_a_polygon(seed):
    generator = np.random.default_rng(seed)
    corners = generator.uniform(-10, 138, size=(2, 2, 2))
    width, height = generator.uniform(0.3, 3, size=2)
    side, patch = [(128, 4), (128, 1), (60, 5)][seed % 3]
    boxes = mouth_box(torch.from_numpy(corners), side, patch, width=width, height=height)
    for box, mouth in zip(boxes.numpy(), corners, strict=True):
        inside, on_edge = by_polygon(mouth, side, patch, width, height)
        assert box.shape == inside.shape
        assert (box == inside)[~on_edge].all()
        assert on_edge.sum() <= 4


def test_a_level_mouth_by_hand():
    # From column 40 to 80: columns 40 … 80, and with twice the length, rows 50 … 130 round row 90.
    box = mouth_box(torch.tensor([[[40.0, 90.0], [80.0, 90.0]]]), 128)[0]
    expected = torch.zeros(128, 128, dtype=torch.bool)
    expected[50:131, 40:81] = True
    assert torch.equal(box, expected)
    for wrong in ({"width": 0.0}, {"height": -1.0}):
        with pytest.raises(ValueError, match=r"must be a finite number above 0"):
            mouth_box(torch.rand(1, 2, 2), 128, **wrong)


FACES = 8
NAMES = [f"{n + 1:06d}.jpg" for n in range(FACES)]
PARTITION = [0, 0, 0, 0, 1, 1, 2, 2]
SMILING = [1, -1, -1, 1, 1, -1, -1, 1]
LANDMARKS = [
    [69, 109, 106, 113, 77, 142, 73 + n, 152 - n, 108 - n, 154 + 2 * n] for n in range(FACES)
]
POINTS = " ".join(
    f"{part}_{axis}"
    for part in ("lefteye", "righteye", "nose", "leftmouth", "rightmouth")
    for axis in "xy"
)


def face(n, height=218, width=178):
    """Blocks of colour, which survive the JPEG format nearly as they are."""
    values = np.zeros((height, width, 3), np.uint8)
    values[..., 0] = 20 * n
    values[: height // 2, :, 1] = 200
    values[:, : width // 2, 2] = 200
    return values


@pytest.fixture
def faces(tmp_path, monkeypatch):
    folder = tmp_path / "celeba"
    folder.mkdir()

    def write(name, rows, *head):
        lines = [" ".join(map(str, (name, *row))) for name, row in zip(NAMES, rows, strict=True)]
        (folder / name).write_text("\n".join([*head, *lines]) + "\n")

    write("list_eval_partition.txt", [[part] for part in PARTITION])
    write("identity_CelebA.txt", [[n] for n in range(FACES)])
    write("list_bbox_celeba.txt", [[1, 2, 3, 4]] * FACES, str(FACES), "x_1 y_1 width height")
    write("list_landmarks_align_celeba.txt", LANDMARKS, str(FACES), POINTS)
    smiles = [[1, smile, -1] for smile in SMILING]
    write("list_attr_celeba.txt", smiles, str(FACES), "Bald Smiling Young")
    for n, name in enumerate(NAMES):
        write_picture(folder / "img_align_celeba" / name, face(n), quality=100, subsampling=0)
    # The lists' checksums are those of the published ones.
    monkeypatch.setattr(CelebA, "_check_integrity", lambda self: True)
    return tmp_path


@pytest.mark.parametrize("part", ["train", "valid", "test"])
def test_a_part_of_celeba_has_its_crops_smiles_and_boxes(faces, part):
    data = celeba_smile(faces, part)
    places = [n for n in range(FACES) if PARTITION[n] == ("train", "valid", "test").index(part)]
    assert data.pixels.shape == (len(places), 3, 128, 128)
    assert data.row_names == tuple(NAMES[n] for n in places)
    assert data.y.tolist() == [int(SMILING[n] == 1) for n in places]
    assert (data.class_names, data.truth_patch) == (("not smiling", "smiling"), 4)
    for image, truth, n in zip(data.pixels, data.truth, places, strict=True):
        expected = torch.from_numpy(face(n)[45:173, 25:153]).permute(2, 0, 1)
        assert (image.int() - expected.int()).abs().float().mean() < 4
        # (218 − 128)/2 = 45 rows and (178 − 128)/2 = 25 columns are cut off before the crop.
        moved = torch.tensor(LANDMARKS[n])[6:].reshape(1, 2, 2) - torch.tensor([25, 45])
        assert torch.equal(truth, mouth_box(moved, 128, 4)[0])
    assert not torch.equal(celeba_smile(faces, part, width=1.8, height=1.0).truth, data.truth)


def test_some_faces_have_both_classes_and_are_the_seeds(faces):
    some = [celeba_smile(faces, rows=2, seed=seed) for seed in (0, 0, 1, 2, 3, 4, 5)]
    assert some[0].row_names == some[1].row_names and len({d.row_names for d in some}) > 1
    assert all(sorted(data.y.tolist()) == [0, 1] for data in some)


def test_faces_that_are_refused_by_name(faces, monkeypatch):
    file = faces / "celeba" / "img_align_celeba" / NAMES[2]
    write_picture(file, face(0, height=178, width=218))
    with pytest.raises(ValueError, match=r"000003.jpg' is 178 × 218 pixels; .* are 218 × 178"):
        celeba_smile(faces)
    file.write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"000003.jpg' cannot be read as a picture"):
        celeba_smile(faces)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"cannot get CelebA in .*corrupted.*download=True"):
        celeba_smile(faces)


@pytest.fixture
def everything(faces, monkeypatch):
    write_mnist(faces, "MNIST", train=200, test=60)
    write_mnist(faces, "FashionMNIST", train=200, test=60)
    defaults = {"rows": (150, 50, 40), "seed": 0, "download": False}
    monkeypatch.setattr(switching_panels, "__kwdefaults__", defaults)
    return faces


@pytest.mark.parametrize("name", image_names())
def test_a_set_is_what_is_known_of_it(everything, name):
    known, parts = IMAGE_SETS[name], image_set(name, everything, seed=1)
    train = parts.train
    assert train.event_shape == known.shape
    assert train.n_classes == (2 if name.endswith(("_8", "shirt", "smile")) else 10)
    assert train.truth_patch == {"panels": 1, "celeba": 4}.get(name.split("_")[0])
    assert all((everything / file).exists() for file in known.files)
    if re.fullmatch("(fashion_)?mnist", name):
        assert [len(part) for part in (train, parts.valid, parts.test)] == [160, 40, 60]
        assert torch.bincount(parts.valid.y).tolist() == [4] * 10
    again, capped = image_set(name, everything, seed=1), image_set(name, everything, rows=2)
    assert torch.equal(parts.valid.pixels, again.valid.pixels)
    assert {len(part) for part in (capped.train, capped.valid, capped.test)} == {2}


def test_other_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no set of images 'cifar'; there are 'mnist', 'fashion_m"):
        image_set("cifar", tmp_path)
    with pytest.raises(ValueError, match="rows must be"):
        image_set("mnist", tmp_path, rows=0)
