"""MEED's Tables 1 to 4: whether what is selected carries a model's output, and the rest does not.

    python benchmarks/infidelity.py                           # 2,000 rows a set, minutes
    python benchmarks/infidelity.py --sets imdb --methods meed l2x vibi
    python benchmarks/infidelity.py --full --device cuda      # all rows, the paper's networks
    python benchmarks/infidelity.py --small                   # to see that it runs
    LEXPPL_DATA=/data python benchmarks/infidelity.py         # where MNIST/raw/…, imdb/… lie

MNIST's 3 and 8 by 25 pixels, Fashion-MNIST's Pullover and Shirt by 64, IMDB's reviews by 10 words.
The explained model is a convolutional network that was fitted to the labels; explainers observe
its probabilities. Their own networks are perceptrons on pixels, of `--full` convolutional too, and
of reviews L2X's. Of every method the k entries of largest logit are kept. Hidden pixels are 0,
hidden words padding. FS-A and FU-A are of fresh predictors. Names such as "meed, no feedback" are
Table 2's ablation: each leaves out one of MEED's terms; "meed, summed prior" has the prior as a sum
over entries where it is a mean by default.
"""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from importances import importances
from record import Records, options_of
from stability import max_sensitivity
from torch import Tensor

from lexppl.data import imdb, mnist
from lexppl.data.named_sets import fashion_mnist
from lexppl.evaluation import fidelity_scores, fit_predictor
from lexppl.inference import TrainingOptions, fit
from lexppl.inference.contexts import seeded
from lexppl.models import flat_images, images, regime_targets, texts
from lexppl.models.architectures.base import Architecture
from lexppl.systems import l2x, lex, meed, vibi

FOLDER = Path(os.environ.get("LEXPPL_DATA", Path(__file__).parents[2] / "shared" / "data"))
WORDS = 5_000
KEPT = {"digits": 25, "fashion": 64, "imdb": 10}
ADVERSARY = {"digits": 1e-3, "fashion": 1.0, "imdb": 1.0}
"""The paper's w."""
ABLATION = {
    "meed": {},
    "meed, no feedback": {"output_feedback": False},
    "meed, no adversary": {"adversary": 0.0},
    "meed, no prior": {"prior": 0.0},
    "meed, summed prior": {},
}
CONTROL = "gradient × input"
"""No explainer that learns: the k pixels that add most to the model's log-odds, to first order. It
says what the model itself can read off k pixels."""
METHODS = ("l2x", "vibi", "lex", *ABLATION, CONTROL)
TEMPERATURE = 0.5
DECAY = 1e-3
"""Of images; that of words, which differ little at first, would make them all alike."""
FEW = 2_500
"""Reviews for training in the smaller one of the two files."""

SAME = ("set", "method", "seed", "rows", "epochs")
LINE = (
    "{set} {seed} {method}: FS-M {fs_m:.1f} FU-M {fu_m:.1f} FS-A {fs_a:.1f} FU-A {fu_a:.1f} "
    "SEN {sensitivity} {seconds:.0f} s"
).format


@dataclass(frozen=True)
class Task:
    """Rows, and networks.

    Args:
        train, test: with x and y.
        architecture: of the explainers and of the fresh predictors.
        explained: of the model.
        epochs, batch_size, weight_decay: of an explainer's fit.
    """

    train: Any
    test: Any
    architecture: Architecture
    explained: Architecture
    epochs: int
    batch_size: int
    weight_decay: float


def of_pair(
    read: Callable[..., Any], pair: tuple[Any, Any], seed: int, options: argparse.Namespace
) -> Task:
    train, test = (read(FOLDER, train=part).only(*pair) for part in (True, False))
    if not options.full:
        train, test = train.take(options.rows, seed=seed), test.take(options.rows // 2, seed=seed)
    size = {} if options.full else {"blocks": (8, 16), "levels": 2, "width": 8}
    explained = images(train.event_shape, **size)
    networks = explained if options.full else flat_images(train.event_shape)
    return Task(train, test, networks, explained, options.epochs, 64, DECAY)


def of_reviews(seed: int, options: argparse.Namespace) -> Task:
    """L2X's networks: the model is a convolutional one, the explainer's predictors see a bag."""
    few = options.rows <= FEW and not options.full
    of_rows = {"reviews": "5k" if few else "all"} | ({"vocabulary": 10_000} if options.full else {})
    length = 400 if options.full else 50 if options.small else 200
    train, test = imdb(FOLDER, **{"vocabulary": WORDS, "length": length, **of_rows})
    if not options.full:
        train, test = (
            part.subset(torch.randperm(len(part), generator=_from(seed))[:count].sort().values)
            for part, count in ((train, options.rows), (test, options.rows // 2))
        )
    filters = 100 if options.full else 32
    size = (len(train.vocabulary), length)
    small = {"filters": filters, "hidden": 250 if options.full else 64}
    networks = texts(*size, predictor="bag", **small)
    explained = texts(*size, predictor="cnn", **small)
    return Task(train, test, networks, explained, options.epochs, 64, 0.0)


def _from(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


SETS: dict[str, Callable[[int, argparse.Namespace], Task]] = {
    "digits": partial(of_pair, mnist, (3, 8)),
    "fashion": partial(of_pair, fashion_mnist, ("Pullover", "Shirt")),
    "imdb": of_reviews,
}


def system_of(method: str, task: Task, model: Any, name: str) -> Any:
    networks, k = task.architecture, KEPT[name]
    if method in ABLATION:
        given = {"adversary": ADVERSARY[name], "prior_epochs": task.epochs} | ABLATION[method]
        if method == "meed, summed prior":
            given["prior"] = float(networks.entries)
        return meed(networks, model, classes=2, k=k, temperature=TEMPERATURE, **given)
    if method == "lex":
        # What is observed is the model's own output, which no predictor can learn by heart.
        return lex(networks, classes=2, k=k, folds=1, unit=1.0)
    factory = {"l2x": l2x, "vibi": vibi}[method]
    return factory(networks, classes=2, k=k, temperature=TEMPERATURE)


def kept(result: Any, x: Tensor, k: int) -> Tensor:
    """The k entries of largest logit, `(N, G)`; fewer where a text has fewer words."""
    rows = torch.cat([importances(result, part) for part in x.split(500)])
    chosen = rows.topk(k, dim=-1).indices
    masks = torch.zeros_like(rows).scatter(-1, chosen, 1.0)
    allowed = getattr(result.model.selector.network, "possible_entries", None)
    there = None if allowed is None else allowed(x)
    return masks if there is None else masks * there


def by_gradient(model: Any, x: Tensor, k: int) -> Tensor:
    """The k pixels of the largest gradient × input of the model's log-odds, `(N, G)`."""
    rows = x.detach().clone().requires_grad_()
    likely = model(rows).logits.log_softmax(-1).topk(2, dim=-1).values
    (gradient,) = torch.autograd.grad((likely[:, 0] - likely[:, 1]).sum(), rows)
    size = (gradient * x).flatten(1)
    return torch.zeros_like(size).scatter(-1, size.topk(k, dim=-1).indices, 1.0)


def judged(
    masks_of: Callable[[Tensor], Tensor], task: Task, model: Any, seed: int
) -> dict[str, Any]:
    """What masks `(N, G)` of rows carry of the model's output, and how many of them differ."""
    start = time.perf_counter()
    masks = masks_of(task.test.x)
    seconds = (time.perf_counter() - start) / len(masks)
    scores = fidelity_scores(
        model,
        task.test.x,
        masks,
        train_x=task.train.x,
        train_masks=masks_of(task.train.x),
        architecture=task.architecture,
        epochs=task.epochs,
        batch_size=task.batch_size,
        seed=seed,
        progress=False,
    )
    figures = {key: 100 * getattr(scores, key) for key in ("fs_m", "fu_m", "fs_a", "fu_a")}
    differing = len(torch.unique(masks, dim=0)) / len(masks)
    return {**figures, "differing_masks": differing, "seconds_a_row": seconds}


def sensitivity(result: Any, x: Tensor) -> float | None:
    """SEN of the probabilities by which an entry is picked; None of words, which do not move."""
    if x.dim() == 2:
        return None

    def shares(rows: Tensor) -> Tensor:
        return importances(result, rows).softmax(-1)

    with torch.no_grad():
        return max_sensitivity(shares, x[:100], perturbations=5, rows_per_chunk=20)


def present(name: str) -> bool:
    """Whether a set's folder is there; where it is not, say so."""
    folder = FOLDER / {"digits": "MNIST", "fashion": "FashionMNIST", "imdb": "imdb"}[name]
    if not folder.is_dir():
        print(f"{name} is skipped: no folder {folder}; set LEXPPL_DATA to where it lies")
    return folder.is_dir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--data-sets", type=int, default=1, help="runs, each with rows of its own")
    parser.add_argument("--rows", type=int, default=2_000, help="for training; half for tests")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--full", action="store_true")
    small = {"rows": 200, "epochs": 2, "sets": ["digits", "imdb"], "methods": ["l2x", "meed"]}
    options = options_of(parser, small=small)
    options.epochs = options.epochs or (100 if options.full else 10)
    records = Records("infidelity", SAME, LINE, options)
    rows = "all" if options.full else options.rows
    for seed in range(1, 1 + options.data_sets):
        for name in filter(present, options.sets):
            same = {"set": name, "seed": seed, "rows": rows, "epochs": options.epochs}
            due = records.due({**same, "method": method} for method in options.methods)
            if due:
                explained(name, seed, due, records, options)


def explained(
    name: str, seed: int, due: list[Any], records: Records, options: argparse.Namespace
) -> None:
    """The model of a set, and those explainers of it that are not recorded."""
    task = SETS[name](seed, options)
    train, test = (part.to(options.device) for part in (task.train, task.test))
    task = replace(task, train=train, test=test)
    shared = {"batch_size": task.batch_size, "seed": seed, "progress": False}
    full = fit_predictor(
        (train.x, train.y),
        valid=0.2,
        architecture=task.explained,
        epochs=2 if options.small else 20,
        training=TrainingOptions(patience=5),
        **shared,
    )
    y = regime_targets("self post-hoc", train.x, predictor=full.predictor)
    accuracy = full.scores(test.x, test.y).accuracy
    for run in due:
        if run["method"] == CONTROL and train.x.dim() == 2:
            continue
        with records.run(run) as record, seeded(seed, train.x.device):
            record |= {"k": KEPT[name], "entries": task.architecture.entries}
            record |= {"device": options.device, "model_accuracy": 100 * accuracy}
            if run["method"] == CONTROL:
                by_model = partial(by_gradient, full.predictor, k=KEPT[name])
                record |= judged(by_model, task, full.predictor, seed) | {"sensitivity": None}
                continue
            system = system_of(run["method"], task, full.predictor, name).to(options.device)
            result = fit(
                system,
                (train.x, y),
                valid=0.2,
                epochs=task.epochs,
                learning_rate=1e-3,
                weight_decay=task.weight_decay,
                **shared,
            )
            of_fit = partial(kept, result, k=KEPT[name])
            record |= judged(of_fit, task, full.predictor, seed)
            record |= {"sensitivity": sensitivity(result, task.test.x)}


if __name__ == "__main__":
    main()
