"""Fits that are killed at random points and go on: whether they end with the bits of a fit that was
never stopped.

    python benchmarks/soak.py                   # 20 fits, killed until each has been three times
    python benchmarks/soak.py --fits 100 --kills 5
    python benchmarks/soak.py --small           # to see that it runs

Each attempt is a process of its own, a fork of one that has fitted the same without a stop; it is
ended by SIGKILL a random time after a random epoch, both drawn by the fit's number, or, every other
time, as soon as a state is being written after that. A state is written after each epoch. What is
compared, by SHA-256 of all bytes: parameters and buffers of all replicates, the history but for its
seconds, best epochs and losses, and masks that are drawn to explain rows.
"""

import argparse
import hashlib
import io
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from record import Records, options_of
from torch.utils.data import DataLoader, TensorDataset

from lexppl.explanation import explain
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import (
    REBAR,
    Checkpoints,
    FitResult,
    NestedIWAE,
    TrainingOptions,
    TunedControl,
    fit,
)
from lexppl.inference.training.checkpoint import DIGITS, STATE
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    GapImputer,
    GaussianImputer,
    Predictor,
    tree_predictor,
)
from lexppl.systems import invase, l2x, lex, q_fit, real_x

SAME = ("fit",)
LINE = (
    "fit {fit} ({case}): {kills} kills, {while_writing} while a state was written, after epochs "
    "{after}; the same bits: {same}; {seconds:.0f} s"
).format
X = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + X[:, 1] * (X[:, 2] > 0) > 0).long()
SIZES: dict[str, Any] = {"hidden": (16,), "predictor_hidden": (16,)}
MOST = 40
"""Attempts at a fit: of those that are killed the next begins where it was."""


def program() -> LEX:
    """Bernoulli masks of a small table."""
    selector = BernoulliSelector(MLP(5, 5, (16,), seed=0))
    return LEX(selector, GaussianImputer(), seeded_predictor())


def seeded_predictor() -> Predictor:
    """A model to explain."""
    return Predictor(MLP(5, 2, (16,), seed=1), CategoricalLikelihood())


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "lex, 2 replicates in 2 folds": lambda: {
        "model": lex(5, classes=2, penalty=0.02, **SIZES),
        "replicates": 2,
    },
    "lex, 2 replicates of weighted rows": lambda: {
        "model": lex(5, classes=2, penalty=0.02, **SIZES),
        "replicates": 2,
        "row_weights": "dirichlet",
    },
    "l2x": lambda: {"model": l2x(5, classes=2, k=2, **SIZES)},
    "invase with patience": lambda: {
        "model": invase(5, classes=2, **SIZES),
        "training": TrainingOptions(patience=5),
    },
    "real_x, in stages": lambda: {"model": real_x(5, classes=2, **SIZES)},
    "q_fit, two replicates": lambda: {
        "model": q_fit(5, seeded_predictor(), hidden=(16,)),
        "replicates": 2,
    },
    "a path of penalties": lambda: {
        "model": [lex(5, classes=2, penalty=p, **SIZES) for p in (0.01, 0.02, 0.04)]
    },
    "REBAR, tuned": lambda: {
        "model": program(),
        "objective": NestedIWAE(2, estimator=REBAR(control=TunedControl())),
    },
    "SGD with momentum and a scheduler, from a loader": lambda: {
        "model": program(),
        "train": DataLoader(TensorDataset(X, Y), batch_size=50, shuffle=True),
        "valid": (X, Y),
        "optimizer": partial(torch.optim.SGD, lr=0.1, momentum=0.9),
        "training": TrainingOptions(partial(torch.optim.lr_scheduler.StepLR, step_size=3)),
    },
    "trees": lambda: {
        "model": LEX(
            BernoulliSelector(MLP(5, 5, (16,), seed=0)), GapImputer(), tree_predictor(X, 2, trees=5)
        ),
        "folds": 2,
    },
}


def fitted(case: str, epochs: int, folder: Path | None) -> FitResult:
    """A case's fit, in this process."""
    settings = {"train": (X, Y), "epochs": epochs, "batch_size": 50, **CASES[case]()}
    model, train = settings.pop("model"), settings.pop("train")
    kept = None if folder is None else Checkpoints(folder, every_minutes=0)
    return fit(model, train, checkpoint=kept, progress=False, **settings)


def digest(result: FitResult) -> str:
    """Of all that a fit has come to."""
    digest = hashlib.sha256()
    history = result.history
    for values in (history.train, history.valid, history.stage, result.best_epoch):
        digest.update(values.tobytes())
    digest.update(result.best_valid.tobytes())
    for module in result.modules:
        for name, tensor in module.state_dict().items():
            digest.update(name.encode() + tensor.detach().numpy().tobytes())
    masks = masks_of(explain(result, X[:50], draws=5, seed=0))
    for name in masks:
        digest.update(masks[name].values.tobytes())
    return digest.hexdigest()


def begun(case: str, epochs: int, folder: Path | None, answer: Path) -> int:
    """Fit in a child, which puts the digest into a file when it is done; its number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        answer.write_text(digest(fitted(case, epochs, folder)))
        code = 0
    finally:
        os._exit(code)


def ended(child: int, within: float | None = None) -> int | None:
    """The exit code of a child; None if it still runs then."""
    end = None if within is None else time.monotonic() + within
    while end is None or time.monotonic() < end:
        found, status = os.waitpid(child, 0 if end is None else os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.0005)
    return None


def is_writing(folder: Path) -> bool:
    """Whether a state is being written."""
    return any(folder.glob(f".{STATE}-*.partial"))


def epochs_kept(folder: Path) -> int:
    """The epochs of the state."""
    file = folder / STATE
    if not file.exists():
        return 0
    content = io.BytesIO(file.read_bytes()[DIGITS:])
    epochs: int = torch.load(content, weights_only=True)["epochs"]
    return epochs


def soaked(number: int, case: str, epochs: int, kills: int, place: Path) -> dict[str, Any]:
    """Kill a fit, let it go on, and compare it with one that was left alone."""
    draw, answer, folder = random.Random(number), place / "answer", place / "states"
    # In this process, so that its forks have loaded what a fit loads as it goes.
    expected = digest(fitted(case, epochs, None))
    after: list[int] = []
    writing = 0
    for _ in range(MOST):
        child = begun(case, epochs, folder, answer)
        if len(after) < kills:
            # Some are killed before they have begun.
            least = draw.randint(kept := epochs_kept(folder), max(kept, epochs - 1))
            begin = time.monotonic()
            code = ended(child, 0.0005)
            while code is None and epochs_kept(folder) < least:
                code = ended(child, 0.0005)
            if code is None:
                code = ended(child, draw.uniform(0.0, 0.2) * (time.monotonic() - begin))
            while code is None and len(after) % 2 and not is_writing(folder):
                code = ended(child, 0.0005)
            if code is None:
                os.kill(child, signal.SIGKILL)
                code = ended(child)
        else:
            code = ended(child)
        if code == -signal.SIGKILL:
            writing += is_writing(folder)
            after.append(epochs_kept(folder))
            continue
        if code != 0:
            raise RuntimeError(f"{case} ended with {code}")
        if len(after) >= kills:
            break
        # It came to its end before its time: the next kills are of another run of it.
        shutil.rmtree(folder)
    return {
        "case": case,
        "epochs": epochs,
        "kills": len(after),
        "while_writing": writing,
        "after": after,
        "same": answer.read_text() == expected,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fits", type=int, default=20)
    parser.add_argument("--kills", type=int, default=3, help="of each fit")
    parser.add_argument("--epochs", type=int, default=20)
    options = options_of(parser, {"fits": 2, "kills": 2, "epochs": 4})
    records = Records("soak", SAME, LINE, options)
    cases = list(CASES)
    for run in records.due({"fit": number} for number in range(options.fits)):
        place = Path(mkdtemp(prefix="lexppl-soak-"))
        with records.run(run) as record:
            case = cases[run["fit"] % len(cases)]
            record.update(soaked(run["fit"], case, options.epochs, options.kills, place))
        shutil.rmtree(place)


if __name__ == "__main__":
    # A fork has the threads of its parent no longer, and would wait for them.
    torch.set_num_threads(1)
    main()
