"""Explainers of chest radiographs by EVAL-X, as REAL-X's Table 3 has them.

    python benchmarks/radiographs.py                         # images of 28 × 28, minutes
    python benchmarks/radiographs.py --patches 7
    python benchmarks/radiographs.py --full --device cuda    # DenseNet121 predicts, 50 epochs
    python benchmarks/radiographs.py --small                 # to see that it runs
    LEXPPL_DATA=/data python benchmarks/radiographs.py       # where pneumonia/… lies

Pneumonia or none, of PneumoniaMNIST: 4,708 images for training, 524 for the choice of λ, 624 for
tests. The paper has other radiographs, of another size, and super-pixels of 16 × 16; those do not
divide 28, so that a mask's entry here is a patch of 4 × 4 pixels (49 of them), or of 7 × 7 (16). A
U-Net of two levels selects and a convolutional network of two blocks, 8 and 16 filters, predicts,
for EVAL-X too; `--full` has the paper's DenseNet121.
"""

import argparse

from judged_images import FOLDER, RATE, Task, options_for, run

from lexppl.data import pneumonia
from lexppl.models import images

GRIDS = {
    "l2x": (1,),
    "invase": (0.01, 0.03, 0.1),
    "base_x": (0.01, 0.03, 0.1),
    "real_x": (0.01, 0.03, 0.1),
    "lex": (0.01, 0.03, 0.1),
    "lex_random": (0.01, 0.03, 0.1),
}
"""λ in nats a patch, of L2X k."""


def task_of(seed, options):
    """Radiographs and the networks that explain them."""
    train, check, test = (pneumonia(FOLDER, part) for part in ("train", "val", "test"))
    if options.small:
        train, check, test = (
            train.take(300, seed=0),
            check.take(100, seed=0),
            test.take(100, seed=0),
        )
    train, check, test = (part.to(options.device) for part in (train, check, test))
    networks = {"blocks": (8, 16), "levels": 2, "width": 8}
    if options.full:
        networks = {"predictor": "densenet121", "levels": 3, "width": 16}
    epochs = 2 if options.small else 50 if options.full else 20
    shared = {
        "valid": 0.1,
        "batch_size": 100,
        "progress": False,
        "learning_rate": RATE,
        "epochs": epochs,
    }
    architecture = images((1, 28, 28), patches=options.patches, **networks)
    return Task(train, check, test, architecture, GRIDS, shared, shared)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=4)
    options = options_for(parser, tuple(GRIDS))
    run("radiographs", options, lambda seed: task_of(seed, options), patches=options.patches)


if __name__ == "__main__":
    main()
