"""REAL-X's Table 2: explainers of MNIST by EVAL-X.

    python benchmarks/digits.py                              # 20,000 digits, minutes
    python benchmarks/digits.py --methods l2x real_x
    python benchmarks/digits.py --full --device cuda         # 60,000 digits, 500 epochs
    python benchmarks/digits.py --small                      # to see that it runs
    LEXPPL_DATA=/data python benchmarks/digits.py            # where MNIST/raw/… lies

Networks are the paper's: perceptrons on pixels, selectors of three hidden layers of 200, predictors
of two; a mask entry for each pixel; y the labels. L2X keeps one pixel. `lex` learns its predictors
(two, cross-fitted) with the selector, and `lex_random` has one that was fitted on random masks
before, as REAL-X has: LEX with a surrogate constant.
"""

import argparse

from judged_images import FOLDER, RATE, Task, options_for, run

from lexppl.data import mnist
from lexppl.inference import Linear
from lexppl.models import flat_images

GRIDS = {
    "l2x": (1,),
    "invase": (0.0001, 0.001),
    "base_x": (0.001, 0.003),
    "real_x": (0.002, 0.005, 0.01),
    "lex": (0.002, 0.005, 0.01),
    "lex_random": (0.002, 0.005, 0.01),
}
"""λ in nats a pixel, of L2X k. The paper's λ = 5 of the mean over the pixels is .0064."""


OWN = {"l2x": {"epochs": 40, "learning_rate": Linear(2e-3, 5e-5, begin=0.5)}}
"""Options of a method's fit at the default size."""


def task_of(seed, options):
    """Digits for training, for the choice of λ and for tests."""
    rows, checked, tested = 20_000, 4_000, 10_000
    if options.full:
        rows, checked = 60_000, 6_000
    if options.small:
        rows, checked, tested = 600, 200, 200
    whole = mnist(FOLDER).take(rows, seed=seed).to(options.device)
    train, check = whole.split(1 - checked / rows, checked / rows, seed=seed)
    test = mnist(FOLDER, train=False).take(tested, seed=seed).to(options.device)
    widths = {"hidden": (200, 200, 200), "predictor_hidden": (200, 200)}
    epochs = 2 if options.small else 500 if options.full else 16
    shared = {"valid": 0.1, "batch_size": 200, "progress": False, "learning_rate": RATE}
    of_judge = {**shared, "epochs": 2 if options.small else 100 if options.full else 30}
    if options.full:
        shared |= {"learning_rate": 1e-4}
    return Task(
        train,
        check,
        test,
        flat_images((1, 28, 28), **widths),
        GRIDS,
        {**shared, "epochs": epochs},
        of_judge,
        {} if options.small or options.full else OWN,
        flat_images((1, 28, 28), batch_norm=True, **widths),
    )


def main() -> None:
    options = options_for(argparse.ArgumentParser(description=__doc__), tuple(GRIDS))
    run("digits", options, lambda seed: task_of(seed, options), 1, "perceptrons")


if __name__ == "__main__":
    main()
