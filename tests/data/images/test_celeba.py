"""CelebA's files, written small: faces, smiles, crops and the box of the mouth."""

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torchvision.datasets import CelebA

from lexppl.data import celeba_smile
from lexppl.data.images import divided_images
from lexppl.data.images.celeba import mouth_box
from tests.data.images.written import write_picture

FACES = 8
NAMES = [f"{n + 1:06d}.jpg" for n in range(FACES)]
PARTITION = [0, 0, 0, 0, 1, 1, 2, 2]
SMILING = [1, -1, -1, 1, 1, -1, -1, 1]
LANDMARKS = [
    [69, 109, 106, 113, 77, 142, 73 + n, 152 - n, 108 - n, 154 + 2 * n] for n in range(FACES)
]
POINTS = (
    "lefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x "
    "rightmouth_y"
)


def face(n, height=218, width=178):
    """Blocks of colour, which survive the JPEG format nearly as they are."""
    values = np.zeros((height, width, 3), np.uint8)
    values[..., 0] = 20 * n
    values[: height // 2, :, 1] = 200
    values[:, : width // 2, 2] = 200
    return values


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "celeba"
    folder.mkdir()
    lines = [f"{name} {part}" for name, part in zip(NAMES, PARTITION, strict=True)]
    (folder / "list_eval_partition.txt").write_text("\n".join(lines) + "\n")
    # CelebA aligns its columns with several spaces.
    lines = [f"{name}  1 {smile:2d} -1" for name, smile in zip(NAMES, SMILING, strict=True)]
    lines = [str(FACES), "Bald Smiling Young ", *lines]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    lines = [
        f"{name}  " + "  ".join(f"{p:3d}" for p in points)
        for name, points in zip(NAMES, LANDMARKS, strict=True)
    ]
    lines = [str(FACES), POINTS, *lines]
    (folder / "list_landmarks_align_celeba.txt").write_text("\n".join(lines) + "\n")
    for n, name in enumerate(NAMES):
        write_picture(folder / "img_align_celeba" / name, face(n), quality=100, subsampling=0)
    return tmp_path


@pytest.mark.parametrize(("part", "rows"), [("train", 4), ("valid", 2), ("test", 2)])
def test_a_part_with_its_crops_and_smiles(root, part, rows):
    data = celeba_smile(root, part)
    places = [n for n in range(FACES) if PARTITION[n] == ("train", "valid", "test").index(part)]
    assert data.pixels.shape == (rows, 3, 128, 128)
    assert data.row_names == tuple(NAMES[n] for n in places)
    assert data.y.tolist() == [int(SMILING[n] == 1) for n in places]
    assert data.class_names == ("not smiling", "smiling")
    crop = torchvision.transforms.CenterCrop(128)
    for image, n in zip(data.pixels, places, strict=True):
        with Image.open(root / "celeba" / "img_align_celeba" / NAMES[n]) as opened:
            expected = torch.from_numpy(np.array(crop(opened))).permute(2, 0, 1)
        assert torch.equal(image, expected)
        assert (image[0].int() - 20 * n).abs().max() < 8


def test_the_truth_is_the_box_moved_with_the_crop(root):
    data = celeba_smile(root)
    assert data.truth.shape == (4, 32, 32)
    assert data.truth_patch == 4
    for n in range(4):
        points = torch.tensor(LANDMARKS[n], dtype=torch.float64)[6:].reshape(1, 2, 2)
        # (218 − 128)/2 = 45 rows and (178 − 128)/2 = 25 columns are cut off before the crop.
        moved = points - torch.tensor([25.0, 45.0])
        assert torch.equal(data.truth[n], mouth_box(moved, 128, 4)[0])
        assert not torch.equal(data.truth[n], mouth_box(points, 128, 4)[0])
        row, column = (moved.mean(1)[0].flip(0) / 4).long().tolist()
        assert data.truth[n, row, column]
    wider = celeba_smile(root, width=1.8, height=1.0)
    assert not torch.equal(wider.truth, data.truth)
    assert data.entry_truth(4).shape == (4, 1024)


def test_torchvision_reads_the_same_lists(root, monkeypatch):
    folder = root / "celeba"
    lines = [f"{name} {n}" for n, name in enumerate(NAMES)]
    (folder / "identity_CelebA.txt").write_text("\n".join(lines))
    lines = [str(FACES), "x y width height", *(f"{name} 1 2 3 4" for name in NAMES)]
    (folder / "list_bbox_celeba.txt").write_text("\n".join(lines))
    monkeypatch.setattr(CelebA, "_check_integrity", lambda self: True)
    theirs = CelebA(str(root), split="train")
    ours = celeba_smile(root)
    assert tuple(theirs.filename) == ours.row_names
    assert torch.equal(theirs.attr[:, theirs.attr_names.index("Smiling")], ours.y)


def test_some_rows_have_both_classes_and_are_the_seeds(root):
    some = [celeba_smile(root, rows=2, seed=seed) for seed in (0, 0, 1, 2, 3, 4, 5)]
    assert some[0].row_names == some[1].row_names
    assert len({data.row_names for data in some}) > 1
    whole = celeba_smile(root)
    for data in some:
        assert sorted(data.y.tolist()) == [0, 1]
        for n, name in enumerate(data.row_names):
            place = whole.row_names.index(name)
            assert torch.equal(data.pixels[n], whole.pixels[place])
            assert torch.equal(data.truth[n], whole.truth[place])
    assert len(celeba_smile(root, rows=100)) == 4


def test_images_are_read_up_to_a_bound(root, monkeypatch):
    size = 3 * 128 * 128
    monkeypatch.setattr(divided_images, "MOST_BYTES", 4 * size)
    assert len(celeba_smile(root)) == 4
    monkeypatch.setattr(divided_images, "MOST_BYTES", 4 * size - 1)
    for file in (root / "celeba" / "img_align_celeba").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"4 images of 3 × 128 × 128 .*give rows= with at most 3"):
        celeba_smile(root)


@pytest.mark.parametrize(
    "name",
    [
        "list_attr_celeba.txt",
        "list_landmarks_align_celeba.txt",
        "list_eval_partition.txt",
        "img_align_celeba/000003.jpg",
    ],
)
def test_a_missing_file_is_named_with_where_to_get_it(root, name):
    (root / "celeba" / name).unlink()
    with pytest.raises(
        ValueError, match=f"celeba/{name}'; get it from http://mmlab.*CelebA"
    ) as told:
        celeba_smile(root)
    assert "\n" not in str(told.value)


def edited(root, name, old, new):
    file = root / "celeba" / f"list_{name}.txt"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("attr_celeba", "Smiling", "Smile", "must have the columns 'Smiling'; it lacks 'Smiling'"),
        ("attr_celeba", "000002.jpg  1 -1", "000002.jpg  1  0", "-1 and 1 as Smiling"),
        ("attr_celeba", "000002.jpg", "000001.jpg", "an image stands in it twice"),
        ("attr_celeba", "000002.jpg", "000009.jpg", "lacks 1 images that .*such as '000002.jpg'"),
        ("attr_celeba", "000002.jpg  1 -1 -1", "000002.jpg  1", "a value is missing"),
        ("landmarks_align_celeba", "nose_y leftmouth_x", "nose_y mouth", "it lacks 'leftmouth_x'"),
        (
            "landmarks_align_celeba",
            "73  152  108  154",
            "73  152   73  152",
            "one point in '000001",
        ),
        ("landmarks_align_celeba", "73  152", "x  152", "no whole number"),
        ("landmarks_align_celeba", "000004.jpg", "000010.jpg", "such as '000004.jpg'"),
        ("eval_partition", "000001.jpg 0", "000001.jpg zero", "no whole number"),
        ("eval_partition", "000001.jpg 0", "000001.jpg 0 7", "cannot be read as a list"),
    ],
)
def test_lists_that_are_refused_by_name(root, name, old, new, message):
    edited(root, name, old, new)
    with pytest.raises(ValueError, match=rf"list_{name}.txt' .*{message}"):
        celeba_smile(root)


def test_an_empty_part_is_refused(root):
    edited(root, "eval_partition", "000005.jpg 1", "000005.jpg 0")
    edited(root, "eval_partition", "000006.jpg 1", "000006.jpg 0")
    with pytest.raises(ValueError, match=r"list_eval_partition.txt' has no image for 'valid'"):
        celeba_smile(root, "valid")
    with pytest.raises(
        ValueError, match="part must be one of 'train', 'valid', 'test'; it is 'val'"
    ):
        celeba_smile(root, "val")


def test_a_picture_of_another_size_is_refused_by_name(root):
    folder = root / "celeba" / "img_align_celeba"
    write_picture(folder / NAMES[2], face(0, height=178, width=218))
    with pytest.raises(ValueError, match=r"000003.jpg' is 178 × 218 pixels; .* are 218 × 178"):
        celeba_smile(root)
    (folder / NAMES[2]).write_bytes(b"no picture")
    with pytest.raises(ValueError, match=r"000003.jpg' cannot be read as a picture"):
        celeba_smile(root)


def test_a_download_is_torchvisions(root, tmp_path, monkeypatch):
    def downloading(folder, download):
        raise RuntimeError("To download files from GDrive, 'gdown' is required.")

    monkeypatch.setattr(torchvision.datasets, "CelebA", downloading)
    assert len(celeba_smile(root, download=True)) == 4
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"CelebA could not be downloaded \(To download .*gdown"):
        celeba_smile(tmp_path / "empty", download=True)
