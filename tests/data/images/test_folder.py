"""Folders of images: classes, parts, sizes and colours, and what is refused by name."""

import numpy as np
import pytest
import torch
from PIL import Image

from lexppl.data import divided_folder
from lexppl.data.images import image_folder, read_picture
from tests import needs
from tests.data.images.written import write_picture
from tests.refusals import refused

torchvision = needs.torchvision()


def grey(value, height=6, width=8):
    values = np.full((height, width), value, np.uint8)
    values[0, 0] = 255
    return values


def colour(value, height=6, width=8):
    return np.stack([grey(value + n, height, width) for n in range(3)], -1)


def fill(folder, count=6, start=0, picture=grey, classes=("ill", "well")):
    for place, name in enumerate(classes):
        for n in range(count):
            write_picture(folder / name / f"{n}.png", picture(start + 20 * place + n))


@pytest.mark.parametrize(("picture", "channels"), [(grey, 1), (colour, 3)])
def test_a_folder_for_each_class(tmp_path, picture, channels):
    fill(tmp_path / "lungs", picture=picture)
    data = image_folder(tmp_path / "lungs")
    assert data.event_shape == (channels, 6, 8)
    assert data.class_names == ("ill", "well")
    assert data.y.tolist() == [0] * 6 + [1] * 6
    assert data.name == "lungs"
    assert data.row_names == tuple(f"{c}/{n}.png" for c in ("ill", "well") for n in range(6))
    for image, value in zip(data.pixels, [*range(6), *range(20, 26)], strict=True):
        expected = np.atleast_3d(picture(value)).transpose(2, 0, 1)
        assert (image.numpy() == expected).all()


def test_torchvision_has_the_same_files_and_labels(tmp_path):
    fill(tmp_path)
    write_picture(tmp_path / "well" / "deeper" / "a.jpeg", grey(0))
    theirs = torchvision.datasets.ImageFolder(str(tmp_path))
    ours = image_folder(tmp_path)
    assert list(ours.class_names) == theirs.classes
    assert [str(tmp_path / name) for name in ours.row_names] == [file for file, _ in theirs.samples]
    assert ours.y.tolist() == theirs.targets


def test_what_is_hidden_or_no_image_is_left_out(tmp_path):
    fill(tmp_path)
    fill(tmp_path / ".ipynb_checkpoints")
    (tmp_path / "ill" / ".DS_Store").write_text("x")
    (tmp_path / "ill" / "._0.png").write_text("x")
    assert len(image_folder(tmp_path)) == 12
    (tmp_path / "ill" / "scan.dcm").write_text("x")
    with pytest.warns(UserWarning, match=r"1 files in .* left out, such as 'ill/scan.dcm'"):
        assert len(image_folder(tmp_path)) == 12


def test_sizes_that_differ_are_refused_by_name_unless_size_is_given(tmp_path):
    fill(tmp_path)
    write_picture(tmp_path / "well" / "large.png", grey(3, 12, 12))
    message = r"well/large.png' is 12 × 12 pixels in grey and .*ill/0.png' is 6 × 8 .*give size="
    refused(message, image_folder, tmp_path)
    assert image_folder(tmp_path, size=4).event_shape == (1, 4, 4)
    assert image_folder(tmp_path, size=(5, 3)).event_shape == (1, 5, 3)
    for size in (0, (4,), (4, 4, 4), (4, -1)):
        refused("size must be", image_folder, tmp_path, size=size)


def test_grey_and_colour_together_are_refused_by_name_unless_it_is_said(tmp_path):
    fill(tmp_path)
    write_picture(tmp_path / "well" / "red.png", colour(9))
    refused(r"red.png' is 6 × 8 pixels in colour and .* in grey; give", image_folder, tmp_path)
    assert image_folder(tmp_path, grayscale=True).event_shape == (1, 6, 8)
    coloured = image_folder(tmp_path, grayscale=False)
    assert coloured.event_shape == (3, 6, 8)
    assert (coloured.pixels[0, 0] == coloured.pixels[0, 2]).all()


def test_scaling_keeps_the_shape_of_things_and_the_middle(tmp_path):
    wide = np.zeros((10, 40), np.uint8)
    wide[:, 15:25] = 255
    write_picture(tmp_path / "wide.png", wide)
    assert (read_picture(tmp_path / "wide.png", (10, 10)) == 255).all()
    whole = read_picture(tmp_path / "wide.png", (5, 20))[0]
    assert (whole[:, 8:12] == 255).all()
    assert (whole[:, :7] == 0).all()


def test_a_picture_is_turned_as_a_viewer_shows_it(tmp_path):
    values = np.arange(48, dtype=np.uint8).reshape(6, 8)
    exif = Image.Exif()
    exif[0x0112] = 6
    write_picture(tmp_path / "turned.png", values, exif=exif)
    assert (read_picture(tmp_path / "turned.png")[0] == np.rot90(values, -1)).all()


def test_kinds_of_pixels(tmp_path):
    values = colour(100)
    for name, picture in {
        "p": Image.fromarray(values).convert("P", palette=Image.Palette.ADAPTIVE),
        "opaque": Image.fromarray(values).convert("RGBA"),
    }.items():
        picture.save(tmp_path / f"{name}.png")
        assert np.abs(read_picture(tmp_path / f"{name}.png").transpose(1, 2, 0) - values).max() == 0
    Image.fromarray(grey(0) > 9).save(tmp_path / "bits.png")
    assert set(np.unique(read_picture(tmp_path / "bits.png"))) == {0, 255}
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "deep.png")
    refused(r"deep.png' has pixels of kind 'I;16'; .*8 bits", read_picture, tmp_path / "deep.png")
    glass = np.dstack([values, np.full((6, 8), 128, np.uint8)])
    Image.fromarray(glass).save(tmp_path / "glass.png")
    refused(r"glass.png' has pixels that are see-through", read_picture, tmp_path / "glass.png")


@pytest.mark.parametrize("spoil", [lambda b: b"", lambda b: b"no picture", lambda b: b[:-30]])
def test_a_broken_picture_is_refused_by_name(tmp_path, spoil):
    fill(tmp_path)
    file = tmp_path / "well" / "3.png"
    noise = np.random.default_rng(0).integers(255, size=(6, 8))
    write_picture(file, noise)
    file.write_bytes(spoil(file.read_bytes()))
    refused(r"well/3.png' cannot be read as a picture", image_folder, tmp_path)


def test_some_rows_are_of_every_class(tmp_path):
    fill(tmp_path)
    some = image_folder(tmp_path, rows=2, seed=1)
    assert sorted(some.y.tolist()) == [0, 1]
    assert some.row_names == image_folder(tmp_path, rows=2, seed=1).row_names


def test_folders_that_are_refused(tmp_path):
    refused("two or more classes; it has no folder", image_folder, tmp_path)
    fill(tmp_path, classes=("ill",))
    refused("two or more classes; it has 'ill'", image_folder, tmp_path)
    (tmp_path / "well").mkdir()
    refused("has no images of class 'well'", image_folder, tmp_path)
    refused("must be a folder that is there", image_folder, tmp_path / "ill" / "0.png")


PARTS = {"train": 10, "val": 20, "test": 30}


def test_folders_of_parts(tmp_path):
    for part, start in PARTS.items():
        fill(tmp_path / "lungs" / part, start=start)
    parts = divided_folder(tmp_path / "lungs")
    for part, start in zip((parts.train, parts.valid, parts.test), PARTS.values(), strict=True):
        assert part.pixels[:, 0, 1, 1].tolist() == [
            *range(start, start + 6),
            *range(start + 20, start + 26),
        ]
        assert part.name == "lungs"
    refused(
        r"has the folders 'train', 'val', 'test', which are parts", image_folder, tmp_path / "lungs"
    )
    assert len(image_folder(tmp_path / "lungs" / "val")) == 12
    assert len(divided_folder(tmp_path / "lungs", rows=4).valid) == 4


def test_a_part_without_a_folder_is_drawn_from_train(tmp_path):
    fill(tmp_path / "train", count=10)
    fill(tmp_path / "test", start=100)
    parts = divided_folder(tmp_path, seed=0)
    assert [len(p) for p in (parts.train, parts.valid, parts.test)] == [16, 4, 12]
    assert divided_folder(tmp_path, valid_share=None).valid is None
    (tmp_path / "test").rename(tmp_path / "validation")
    parts = divided_folder(tmp_path, test_share=0.3, seed=0)
    assert [len(p) for p in (parts.train, parts.valid, parts.test)] == [14, 12, 6]


@pytest.mark.smoke
def test_a_folder_of_classes_is_divided(tmp_path):
    fill(tmp_path, count=10)
    parts = divided_folder(tmp_path, valid_share=0.2, test_share=0.3, seed=1)
    assert [len(p) for p in (parts.train, parts.valid, parts.test)] == [10, 4, 6]
    names = [name for p in (parts.train, parts.valid, parts.test) for name in p.row_names]
    assert len(set(names)) == 20
    assert all(torch.bincount(p.y).unique().numel() == 1 for p in (parts.train, parts.test))
    again = divided_folder(tmp_path, valid_share=0.2, test_share=0.3, seed=1)
    assert parts.train.row_names == again.train.row_names
    with pytest.raises(ValueError, match="must leave images to fit on; together they are 1"):
        divided_folder(tmp_path, valid_share=0.5, test_share=0.5)


def test_parts_that_are_refused(tmp_path):
    fill(tmp_path / "test")
    refused("has 'test' and no folder 'train'", divided_folder, tmp_path)
    fill(tmp_path / "train", classes=("a", "b"))
    refused(r"test' has the class 'ill', not in 'train'", divided_folder, tmp_path)
    for name in ("val", "valid"):
        fill(tmp_path / name)
    refused("which are not one for each part", divided_folder, tmp_path)


@pytest.mark.parametrize("read", [image_folder, divided_folder])
def test_parts_are_not_taken_for_classes(tmp_path, read):
    for name in ("train", "test", "copy"):
        fill(tmp_path / name)
    refused(r"'copy', .*which are not one for each part; move", read, tmp_path)
    (tmp_path / "copy").rename(tmp_path / "__MACOSX")
    assert len(divided_folder(tmp_path).test) == 12


def test_train_may_be_a_class(tmp_path):
    fill(tmp_path, classes=("car", "train"))
    assert image_folder(tmp_path).class_names == ("car", "train")


def test_a_class_may_be_missing_in_a_test(tmp_path):
    fill(tmp_path / "train", classes=("a", "b", "c"))
    fill(tmp_path / "test", classes=("a", "c"))
    test = divided_folder(tmp_path).test
    assert test.class_names == ("a", "b", "c")
    assert test.y.unique().tolist() == [0, 2]
