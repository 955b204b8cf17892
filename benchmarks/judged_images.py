"""Explainers of images and EVAL-X's judgement of them: what `digits.py` and `radiographs.py` share.

Of each method a grid of penalties is fitted as the replicates of one fit, and one is chosen by the
rule of REAL-X's paper: the fewest entries kept whose accuracy is within 5 % of that of a predictor
that sees everything, on rows apart. Masks are the entries of probability above ½, of L2X the k of
largest logit; ACC is of the method's own predictor and eACC of EVAL-X, both on the image with all
else black.
"""

import os
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from importances import accuracy_of, importances, top
from record import Records, options_of

from lexppl.evaluation import auroc, fit_evalx, fit_predictor
from lexppl.evaluation.penalty_path import best_validation
from lexppl.inference import Linear, fit
from lexppl.models import CategoricalLikelihood, frozen
from lexppl.systems import base_x, invase, l2x, lex, real_x

FOLDER = Path(os.environ.get("LEXPPL_DATA", Path(__file__).parents[2] / "shared" / "data"))
L2X_TEMPERATURE = 0.5
"""As for text: at .1 one of 784 pixels is learned too slowly."""
SAME = ("method", "seed", "full", "patches", "networks")
RATE = Linear(1e-3, 5e-5, begin=0.5)
LINE = (
    "{seed} {method:10s} keeps {size:.1f} ACC {accuracy:.3f} eACC {evalx_accuracy:.3f} eAUROC "
    "{evalx_auroc:.3f} of FULL {full_accuracy:.3f}, {seconds:.0f} s"
).format


@dataclass(frozen=True)
class Task:
    """What is explained, by which networks, and for how long.

    Args:
        train: images for fits.
        check: images on which λ is chosen.
        test: images for the judgement.
        architecture: of predictors and selectors.
        grids: λ in nats an entry, by method; of l2x its k.
        fit: options of the methods' fits.
        judge: options of the fits of EVAL-X and of the predictor that sees everything.
        own: options of a method's fit in place of those of `fit`, by method.
        normalised: the architecture with batch norm in the predictor, which L2X and INVASE have;
            None where there is but the one.
    """

    train: object
    check: object
    test: object
    architecture: object
    grids: Mapping[str, tuple[float, ...]]
    fit: Mapping[str, object]
    judge: Mapping[str, object]
    own: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    normalised: object = None


def systems(method, task, surrogate):
    """The systems among which a method chooses; `surrogate` makes a predictor of random masks."""
    of = {"classes": task.train.n_classes}
    grid = task.grids[method]
    normed = task.normalised or task.architecture
    if method == "l2x":
        return [l2x(normed, k=int(k), temperature=L2X_TEMPERATURE, **of) for k in grid]
    if method == "invase":
        return [invase(normed, penalty=penalty, **of) for penalty in grid]
    if method == "lex_random":
        # Its masks are judged by a predictor that has learned from random ones.
        of["predictor"] = frozen(surrogate())
    factory = {"base_x": base_x, "real_x": real_x, "lex": lex, "lex_random": lex}[method]
    return [factory(task.architecture, penalty=penalty, **of) for penalty in grid]


def masks_of(method, result, x, place, k):
    """`(N, G)`: the masks that are judged."""
    ranking = importances(result, x, place)
    return top(ranking, int(k)) if method == "l2x" else (ranking > 0.5).float()


def judged(method, result, task, judge, seed):
    """Every candidate on the test images, with what it is chosen by."""
    grouping = task.architecture.grouping.to(task.test.x.device)
    accuracies = []
    for place, setting in enumerate(task.grids[method]):
        model = result.models[place]
        apart = masks_of(method, result, task.check.x, place, setting)
        masks = masks_of(method, result, task.test.x, place, setting)
        heard = judge.scores(task.test.x, task.test.y, masks, seed=seed)
        accuracies.append(
            {
                "setting": setting,
                "check_size": float(apart.sum(-1).mean()),
                "check_accuracy": accuracy_of(model.predictor, task.check, apart, grouping),
                "size": float(masks.sum(-1).mean()),
                "accuracy": accuracy_of(model.predictor, task.test, masks, grouping),
                "evalx_accuracy": heard.accuracy,
                "evalx_auroc": heard.auroc,
                "collapse": result.collapse[place],
            }
        )
    return accuracies


def place_of(candidates, full_accuracy):
    """REAL-X's rule; where no candidate is within 5 %, the best there is."""
    sizes = [c["check_size"] for c in candidates]
    accuracies = [c["check_accuracy"] for c in candidates]
    within = [i for i, a in enumerate(accuracies) if a >= (0.95 - 1e-9) * full_accuracy]
    if not within:
        return best_validation(sizes, accuracies)
    return min(within, key=lambda i: (sizes[i], -accuracies[i]))


@contextmanager
def said_if_absent():
    """End with a line where a file of the data is not there."""
    try:
        yield
    except ValueError as error:
        raise SystemExit(f"{error}. LEXPPL_DATA names the folder of the data sets") from error


def options_for(parser, methods):
    """The scripts' options."""
    parser.add_argument("--methods", nargs="+", choices=methods, default=list(methods))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda")
    parser.add_argument("--full", action="store_true", help="the paper's size, for a GPU")
    return options_of(parser, small={"seeds": 1})


def run(name, options, task_of, patches, networks):
    """Fit and judge what is not recorded yet.

    Args:
        name: of the records.
        options: of :func:`options_for`.
        task_of: from a seed to its :class:`Task`.
        patches: the side of an entry's patch, in pixels.
        networks: what they are called in the records.
    """
    records = Records(name, SAME, LINE, options)
    runs = [
        {
            **{"method": method, "seed": seed, "full": options.full},
            **{"patches": patches, "networks": networks},
        }
        for seed in range(1, 1 + options.seeds)
        for method in options.methods
    ]
    for seed in dict.fromkeys(due["seed"] for due in records.due(runs)):
        with said_if_absent():
            task = task_of(seed)
        outputs = task.train.n_classes

        def random_masks(own_seed, task=task, outputs=outputs):
            network = task.architecture.predictor(outputs, seed=own_seed).to(options.device)
            shared = {"grouping": task.architecture.grouping.to(options.device), **task.judge}
            return fit_evalx(
                task.train,
                network=network,
                likelihood=CategoricalLikelihood(),
                seed=own_seed,
                **shared,
            )

        judge = random_masks(seed)
        network = task.architecture.predictor(outputs, seed=seed).to(options.device)
        full = fit_predictor(task.train, network=network, seed=seed, **task.judge)
        reference = {
            "full_accuracy": full.scores(task.test.x, task.test.y).accuracy,
            "full_auroc": auroc(full.predict(task.test.x), task.test.y),
            "full_check_accuracy": full.scores(task.check.x, task.check.y).accuracy,
            "rows": len(task.train),
            "test_rows": len(task.test),
            "entries": task.architecture.entries,
            "device": options.device,
        }
        # A seed of its own: LEX's predictor of random masks is not the judge.
        own = seed + 1000
        for due in [r for r in records.due(runs) if r["seed"] == seed]:
            method = due["method"]
            with records.run(due) as record:
                systems_tried = systems(
                    method, task, lambda own=own, make=random_masks: make(own).predictor
                )
                training = {**task.fit, **task.own.get(method, {})}
                result = fit(
                    [system.to(options.device) for system in systems_tried],
                    (task.train.x, task.train.y),
                    seed=seed,
                    **training,
                )
                tried = judged(method, result, task, judge, seed)
                place = place_of(tried, reference["full_check_accuracy"])
                record |= {
                    **reference,
                    "fit_epochs": training["epochs"],
                    "batch_size": training["batch_size"],
                    **tried[place],
                    "place": place,
                    "candidates": tried,
                }
