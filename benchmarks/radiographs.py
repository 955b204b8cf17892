"""Explainers of chest radiographs by EVAL-X, as REAL-X's Table 3 has them.

    python benchmarks/radiographs.py                         # images of 28 × 28, minutes
    python benchmarks/radiographs.py --patches 7
    python benchmarks/radiographs.py --networks convolutional    # ten times as long
    python benchmarks/radiographs.py --full --device cuda    # DenseNet121 predicts, 50 epochs
    python benchmarks/radiographs.py --small                 # to see that it runs
    LEXPPL_DATA=/data python benchmarks/radiographs.py       # where pneumonia/… lies

Pneumonia or none, of PneumoniaMNIST: 4,708 images for training, 524 for the choice of λ, 624 for
tests. The paper has other radiographs, of another size, and super-pixels of 16 × 16; those do not
divide 28, so that a mask's entry here is a patch of 4 × 4 pixels (49 of them), or of 7 × 7 (16).
Networks are perceptrons of two layers of 200 at the default size; `--networks convolutional` is a
U-Net of two levels that selects and a convolutional network of two blocks that predicts, for EVAL-X
too; `--full` has a U-Net and the paper's DenseNet121.
"""

import argparse

import numpy as np
import torch
from judged_images import FOLDER, RATE, Task, options_for, run

from lexppl.data.images import ImageDataset
from lexppl.models import flat_images, images

GRIDS = {
    "l2x": (1,),
    "invase": (0.005, 0.02),
    "base_x": (0.005, 0.02),
    "real_x": (0.005, 0.02),
    "lex": (0.005, 0.02),
    "lex_random": (0.005, 0.02),
}
"""λ in nats a patch, of L2X k."""
SHAPE = (1, 28, 28)


def perceptrons(patches):
    """Those of the default size, plain and with batch norm."""
    widths = {"hidden": (200, 200), "predictor_hidden": (200, 200)}
    return [flat_images(SHAPE, patches, batch_norm=norm, **widths) for norm in (False, True)]


def convolutional(patches):
    """A small U-Net and two blocks, plain and with batch norm."""
    sizes = {"blocks": (8, 16), "levels": 2, "width": 8}
    return [images(SHAPE, patches, batch_norm=norm, **sizes) for norm in (False, True)]


def densenet(patches):
    """The paper's: a U-Net and DenseNet121, which has batch norm."""
    return images(SHAPE, patches, predictor="densenet121"), None


NETWORKS = {"perceptrons": perceptrons, "convolutional": convolutional, "densenet": densenet}


def pneumonia(part: str) -> ImageDataset:
    """PneumoniaMNIST (Kermany et al. 2018; Yang et al. 2023): radiographs `(N, 1, 28, 28)` of
    "train", "val" or "test". The file is at https://zenodo.org/records/10519652."""
    file = FOLDER / "pneumoniamnist.npz"
    below = FOLDER / "pneumonia" / file.name
    if not file.is_file() and not below.is_file():
        raise ValueError(f"there is no file {str(file)!r} nor {str(below)!r}")
    with np.load(file if file.is_file() else below) as arrays:
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
    pixels, y = torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels.reshape(-1)).long()
    names = ("normal", "pneumonia")
    return ImageDataset(pixels, y, names, name="pneumonia", target_name="finding")


def task_of(seed, options):
    """Radiographs and the networks that explain them."""
    train, check, test = (pneumonia(part) for part in ("train", "val", "test"))
    if options.small:
        train, check, test = (part.take(300, seed=0) for part in (train, check, test))
    train, check, test = (part.to(options.device) for part in (train, check, test))
    epochs = 2 if options.small else 50 if options.full else 20
    shared = {
        "valid": 0.1,
        "batch_size": 100,
        "progress": False,
        "learning_rate": RATE,
        "epochs": epochs,
    }
    architecture, normalised = NETWORKS[options.networks](options.patches)
    return Task(train, check, test, architecture, GRIDS, shared, shared, {}, normalised)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=4)
    parser.add_argument("--networks", choices=list(NETWORKS), default="perceptrons")
    options = options_for(parser, tuple(GRIDS))
    if options.full:
        options.networks = "densenet"
    networks = options.networks
    run("radiographs", options, lambda seed: task_of(seed, options), options.patches, networks)


if __name__ == "__main__":
    main()
