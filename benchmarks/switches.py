"""S1, S2, S3: are both branches of a switch found, in seconds, by one setting for all?

    python benchmarks/switches.py                  # R = 4, five data sets a set
    python benchmarks/switches.py --labels observed --folds 2 --seeds 9201
    python benchmarks/switches.py --branches       # batches of 64, 200, 1,000: is a branch lost?
    python benchmarks/switches.py --small          # to see that it runs

10,000 rows, 10,000 test rows, networks of 64, standard Gaussian imputation, Bernoulli masks
annealed towards .8. Selections are the entries whose probability, the mean of the replicates', is
above a threshold. The gap is the oracle's log-likelihood, p(y | all of x), less the explainer's,
`log 1/100 Σ p(y | x̃)`, a row, the mean of the replicates'; the floor is the gap of the same
predictor, fitted in the same run, whose masks are the truth. Seconds are of the fit of all
replicates, by the clock and of the processor.
"""

import argparse
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from statistics import mean
from typing import Any

import pyro.distributions as dist
import torch
from record import Records, options_of
from torch import Tensor, nn

from lexppl.data import synthetic
from lexppl.data.synthetic import synthetic_set
from lexppl.evaluation.mask_scores import selection_scores
from lexppl.evaluation.oracle import Oracle
from lexppl.inference import (
    Linear,
    LossTerm,
    NestedIWAE,
    ReplicateData,
    Stage,
    System,
    Unscored,
    WarmUp,
    fit,
)
from lexppl.inference.contexts import seeded
from lexppl.models import LEX, GaussianImputer
from lexppl.models.predictor import table_predictor
from lexppl.systems import lex

FEATURES, CONTROL = 11, 10
WIDTHS = (64, 64)
MASKS, TOWARDS = 4, 0.8
RATE = WarmUp(Linear(3e-3, 0.0, begin=0.7), share=0.03)
DRAWS = 100
THRESHOLDS = (0.5, 0.7, 0.8)
LOST = 0.5
"""A branch is lost where less than this share of its own features (the switch and what both
branches share left out) is kept, at p > ½, in the rows in which it decides."""
TESTED = 50_000
"""Added to a data set's seed for its test rows."""
SAME = (
    "kind",
    "set",
    "labels",
    "folds",
    "penalty",
    "decay",
    "seed",
    "epochs",
    "batch",
)
NOT_OF_THE_FLOOR = ("labels", "penalty")
LINE = (
    "{kind} {set} data {seed}, {labels}, folds {folds}, batches of {batch}: {summary}, "
    "{cpu_seconds:.0f} s of one core"
).format


class TrueMasks(nn.Module):
    """The selector that knows the truth.

    Args:
        name: of the set.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> dist.TorchDistribution:
        return dist.Bernoulli(probs=synthetic_set(self.name).truth(x).to(x.dtype)).to_event(1)


def floor_system(name: str, folds: int) -> System:
    """The predictor alone, on the true masks."""

    def build() -> list[Stage]:
        predictor = table_predictor(FEATURES, 2, WIDTHS)
        model = LEX(TrueMasks(name), GaussianImputer(), predictor)
        return [Stage([LossTerm(model, NestedIWAE(MASKS, estimator=Unscored()))])]

    return System(build, folds=folds)


def explainer(run: dict[str, Any]) -> System:
    """LEX as it is measured here."""
    return lex(
        FEATURES,
        classes=2,
        penalty=run["penalty"],
        masks=MASKS,
        folds=run["folds"],
        towards=TOWARDS,
        unit=1.0,
        labels=run["labels"],
        imputer=GaussianImputer(),
        hidden=WIDTHS,
        predictor_hidden=WIDTHS,
    )


def training(run: dict[str, Any]) -> dict[str, Any]:
    """Settings of `fit`."""
    return {
        "valid": 0.1,
        "epochs": run["epochs"],
        "batch_size": run["batch"],
        "learning_rate": RATE,
        "seed": run["seed"],
        "progress": False,
    }


@contextmanager
def clocked(record: dict[str, Any]) -> Iterator[None]:
    """Put the seconds of the block into the record, by the clock and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    yield
    record["seconds"] = time.perf_counter() - clock
    record["cpu_seconds"] = time.process_time() - processor


@torch.no_grad()
def log_likelihood(model: LEX, test: Any, seed: int) -> float:
    """`log 1/100 Σ p(y | x̃)`, the mean over rows."""
    with seeded(seed):
        drawn = [
            model.predictor(model.imputer(test.x, mask).sample()).log_prob(test.y)
            for mask in model.selector(test.x).sample((DRAWS,))
        ]
    return float((torch.logsumexp(torch.stack(drawn), 0) - math.log(DRAWS)).mean())


@torch.no_grad()
def selected(models: list[LEX], x: Tensor) -> Tensor:
    """Selection probabilities of each replicate, `(R, N, G)`."""
    return torch.stack([model.selector(x).mean for model in models])


def scores(probability: Tensor, truth: Tensor, threshold: float) -> dict[str, float]:
    """TPR, FDR and control flow of what is above a threshold."""
    found = selection_scores((probability > threshold).float(), truth, control=CONTROL)
    return {"tpr": found.tpr, "fdr": found.fdr, "control_flow": found.control_flow}


def branch_recalls(kept: Tensor, truth: Tensor) -> list[float]:
    """For each branch, the share of its own features that its rows keep.

    Args:
        kept: `(N, G)` of 0 and 1.
        truth: the truth masks, which are one pattern a branch.
    """
    patterns = truth.unique(dim=0)
    own = patterns.bool() & ~patterns.bool().all(0)
    return [
        float(kept[(truth == pattern).all(-1)][:, mine].float().mean())
        for pattern, mine in zip(patterns, own, strict=True)
    ]


def switch(
    record: dict[str, Any],
    rows: int,
    floors: dict[tuple[Any, ...], list[float]],
) -> None:
    """Replicates on one data set, and the floor of their predictor, which is fitted once for all
    labels and penalties."""
    name, seed = record["set"], record["seed"]
    train = synthetic(name, rows=rows, seed=seed)
    test = synthetic(name, rows=rows, seed=TESTED + seed)
    with clocked(record):
        result = fit(
            explainer(record),
            train,
            replicates=record["replicates"],
            weight_decay=record["decay"],
            **training(record),
        )
    best = Oracle(name).full(test.x, test.y).log_likelihood
    gaps = [best - log_likelihood(model, test, seed) for model in result.models]
    key = tuple(record[field] for field in SAME if field not in NOT_OF_THE_FLOOR)
    if key not in floors:
        floor = fit(
            floor_system(name, record["folds"]),
            train,
            replicates=record["replicates"],
            weight_decay=record["decay"],
            **training(record),
        )
        floors[key] = [best - log_likelihood(model, test, seed) for model in floor.models]
    probability = selected(result.models, test.x)
    for threshold in THRESHOLDS:
        record[f"above {threshold}"] = scores(probability.mean(0), test.truth, threshold)
        record[f"each above {threshold}"] = [
            scores(one, test.truth, threshold) for one in probability
        ]
    record |= {
        "gaps": gaps,
        "gap": mean(gaps),
        "floor": mean(floors[key]),
        "gap_ratio": mean(gaps) / mean(floors[key]),
        "best_epoch": result.best_epoch.tolist(),
        "best_valid": result.best_valid.tolist(),
        "summary": summary_of(record, mean(gaps), mean(floors[key])),
    }


def summary_of(record: dict[str, Any], gap: float, floor: float) -> str:
    """The figures in a line."""
    above = [
        "p > {}: TPR {tpr:.3f} FDR {fdr:.3f} control {control_flow:.3f}".format(
            threshold, **record[f"above {threshold}"]
        )
        for threshold in THRESHOLDS
    ]
    return "; ".join([*above, f"gap {gap:.4f}, floor {floor:.4f}, ratio {gap / floor:.2f}"])


def branches(record: dict[str, Any], rows: int) -> None:
    """One fit a data set, as replicates, and the branches that each has lost."""
    name, seeds = record["set"], [record["seed"], record["seed"] + 1]
    train = ReplicateData([synthetic(name, rows=rows, seed=seed) for seed in seeds])
    with clocked(record):
        result = fit(explainer(record), train, weight_decay=record["decay"], **training(record))
    each = []
    for seed, model in zip(seeds, result.models, strict=True):
        test = synthetic(name, rows=rows, seed=TESTED + seed)
        (probability,) = selected([model], test.x)
        recalls = branch_recalls(probability > 0.5, test.truth)
        figures = scores(probability, test.truth, 0.5)
        each.append({"data": seed, "recalls": recalls, "lost": min(recalls) < LOST, **figures})
    lost = sum(one["lost"] for one in each)
    figures = ", ".join(f"TPR {one['tpr']:.3f} FDR {one['fdr']:.3f}" for one in each)
    record |= {"each": each, "lost": lost, "fits": len(each)}
    record["summary"] = f"{lost} of {len(each)} with a branch lost; {figures}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["S1", "S2", "S3"])
    parser.add_argument("--labels", nargs="+", default=["averaged"])
    parser.add_argument("--folds", type=int, nargs="+", default=[1])
    parser.add_argument("--penalty", type=float, nargs="+", default=[0.0125], help="nats an entry")
    parser.add_argument("--decay", type=float, default=3e-4, help="of all weights")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[*range(9201, 9206)], help="of the data"
    )
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=80)
    parser.add_argument("--branches", action="store_true", help="is a branch lost, by batch size?")
    parser.add_argument("--batches", type=int, nargs="+", help="rows of a batch")
    small = {"sets": ["S1"], "seeds": [9201], "epochs": 2, "replicates": 2}
    options = options_of(parser, small=small)
    rows = 500 if options.small else 10_000
    records = Records("switches", SAME, LINE, options)
    kind, floors = "branches" if options.branches else "switch", {}
    fields = (
        [kind],
        options.sets,
        options.labels,
        options.folds,
        options.penalty,
        [options.decay],
        options.seeds,
        [options.epochs],
        options.batches or ([64, 200, 1000] if options.branches else [500]),
    )
    runs = (dict(zip(SAME, values, strict=True)) for values in product(*fields))
    for run in records.due(runs):
        with records.run(run) as record:
            record["replicates"] = 2 if options.branches else options.replicates
            if options.branches:
                branches(record, rows)
            else:
                switch(record, rows, floors)


if __name__ == "__main__":
    main()
