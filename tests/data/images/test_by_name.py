"""Sets of images by name are what is known of them before they are read."""

import pytest
import torch

from lexppl.choices.data_sets import IMAGE_SETS, image_names
from lexppl.data import image_set
from tests.data.images.test_celeba import root as celeba_root  # noqa: F401
from tests.data.images.test_radiographs import written
from tests.data.images.written import real_data, write_mnist


@pytest.fixture
def everything(celeba_root, monkeypatch):  # noqa: F811
    write_mnist(celeba_root, "MNIST", train=200, test=60)
    write_mnist(celeba_root, "FashionMNIST", train=200, test=60)
    written(celeba_root)
    monkeypatch.setattr("lexppl.data.images.by_name.switching_panels.__kwdefaults__", PANELS)
    return celeba_root


PANELS = {"rows": (150, 50, 40), "seed": 0, "download": False}


@pytest.mark.parametrize("name", image_names())
def test_a_set_is_what_is_known_of_it(everything, name):
    known = IMAGE_SETS[name]
    parts = image_set(name, everything, seed=1)
    assert parts.train.event_shape == known.shape
    assert parts.train.n_classes == known.classes
    assert parts.train.target_name == known.target
    assert parts.train.truth_patch == known.truth
    assert all((everything / file).exists() for file in known.files)
    for part in (parts.train, parts.valid, parts.test):
        assert part.class_names == parts.train.class_names
    again, capped = image_set(name, everything, seed=1), image_set(name, everything, rows=2)
    assert torch.equal(parts.valid.pixels, again.valid.pixels)
    assert {len(part) for part in (capped.train, capped.valid, capped.test)} == {2}


def test_a_fifth_of_the_images_for_training_is_set_apart(everything):
    parts = image_set("mnist", everything)
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [160, 40, 60]
    assert torch.bincount(parts.valid.y).tolist() == [4] * 10


def test_other_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no set of images 'cifar'; there are 'mnist', 'fashion_m"):
        image_set("cifar", tmp_path)
    with pytest.raises(ValueError, match="rows must be"):
        image_set("mnist", tmp_path, rows=0)


def test_the_real_pair_has_as_many_as_is_said():
    parts = image_set("mnist_3_8", real_data("MNIST"))
    assert [len(part) for part in (parts.train, parts.valid, parts.test)] == [9586, 2396, 1984]
