"""LEX's Figures 3 and 4: imputers at several rates, and the constant that is imputed.

    python benchmarks/lex_figures.py --figure 3     # rates 3, 5, 7 of 11 x imputers x S1, S2, S3
    python benchmarks/lex_figures.py --figure 4     # constants -10 ... 9 at rate 5 of 11, S3
    python benchmarks/lex_figures.py --figure 3 --full      # rates 2 to 9 of 11, 1,000 epochs
    python benchmarks/lex_figures.py --figure 3 --small     # to see that it runs

Exact k-subset masks, k = 11 x rate, judged on 100 draws a row of 10,000 test rows. Rates and data
sets, or constants, are replicates of one fit: each has its own k, its own imputer and its own rows.
What is already recorded is not run again.
"""

import argparse
from itertools import product

import torch
from record import Records, options_of, timed

from lexppl.data import synthetic
from lexppl.evaluation import selection_scores
from lexppl.inference import Linear, LossTerm, ReplicateData, Stage, System, annealed, fit
from lexppl.inference.contexts import seeded
from lexppl.models import LEX, MLP, ConstantImputer, KSubsetSelector
from lexppl.models.imputers import imputer_of
from lexppl.models.predictor import table_predictor
from lexppl.systems import random_mask_predictor

FEATURES = 11
EPOCHS, BATCH = 40, 200
IMPUTERS = (
    "constant",
    "surrogate constant",
    "marginal",
    "gaussian",
    "gaussian-mixture",
)
SAME = ("figure", "set", "imputer", "k", "constant", "seed", "epochs")
LINE = (
    "{set} {imputer} {constant:g} k = {k} data {seed}: TPR {tpr:.3f} FPR {fpr:.3f} CFSR "
    "{cfsr:.3f}, {seconds:.0f} s"
).format


def system(k, imputer, on_random_masks):
    """LEX with k of 11 entries; with a surrogate its predictor learns from random masks, first."""

    def build():
        predictor = table_predictor(FEATURES, 2, (200, 200, 200))
        model = LEX(KSubsetSelector(MLP(FEATURES, FEATURES, (200, 200)), k), imputer, predictor)
        explain = Stage([LossTerm(model, annealed(4), learns=[model.selector])])
        if on_random_masks:
            return [Stage([random_mask_predictor(predictor, imputer, FEATURES)]), explain]
        return [Stage([LossTerm(model, annealed(4))])]

    return System(build)


def judged(model, test, seed):
    with seeded(seed), torch.no_grad():
        masks = model.selector(test.x).sample((100,))
        y = [model.predictor(model.imputer(test.x, z).sample()).probs for z in masks[:20]]
    scores = selection_scores(masks, test.truth, control=10)
    predicted = torch.stack(y).mean(0).argmax(-1)
    return {
        "tpr": scores.tpr,
        "fpr": scores.fpr,
        "fdr": scores.fdr,
        "cfsr": scores.control_flow,
        "accuracy": float((predicted == test.y).float().mean()),
    }


def plan(options, epochs):
    """Fits as lists of replicates, each with the fields of `SAME`."""
    if options.figure == 3:
        sets, imputers = options.sets or ["S1", "S2", "S3"], options.imputers
        rates = range(2, 10) if options.full else (3, 5, 7)
        fits = [[(k, 0.0, seed) for seed in options.seeds for k in rates]]
    else:
        sets, imputers = options.sets or ["S3"], [i for i in options.imputers if "constant" in i]
        fits = [[(5, float(c), seed) for c in options.constants] for seed in options.seeds]
    for name, imputer, replicates in product(sets, imputers, fits):
        runs = ((options.figure, name, imputer, *one, epochs) for one in replicates)
        yield [dict(zip(SAME, values, strict=True)) for values in runs]


def imputer_for(run, train):
    """The imputer of a run: its constant, or one that is learnt from the training rows."""
    if "constant" in run["imputer"]:
        return ConstantImputer(run["constant"])
    return imputer_of(run["imputer"], train.x, run["seed"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=int, choices=(3, 4), required=True)
    parser.add_argument("--sets", nargs="+", help="S1 S2 S3 for Figure 3, S3 for Figure 4")
    parser.add_argument("--imputers", nargs="+", default=list(IMPUTERS))
    parser.add_argument("--constants", type=int, nargs="+", default=list(range(-10, 10)))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--full", action="store_true")
    small = {"sets": ["S3"], "constants": [0, 3], "seeds": [1]}
    options = options_of(parser, small=small)
    epochs, batch = (1000, 1000) if options.full else (EPOCHS, BATCH)
    epochs, rows = (2, 1_000) if options.small else (epochs, 10_000)
    rate = 1e-4 if options.full else Linear(1e-3, 5e-5, begin=0.5)
    training = {"epochs": epochs, "batch_size": batch, "learning_rate": rate, "valid": 0.1}
    records = Records("lex_figures", SAME, LINE, options)
    for wanted in plan(options, epochs):
        due = records.due(wanted)
        if not due:
            continue
        clock: dict[str, float] = {}
        with timed(clock):
            name, seeds = due[0]["set"], {run["seed"] for run in due}
            train = {seed: synthetic(name, rows=rows, seed=seed) for seed in seeds}
            systems = [
                system(
                    run["k"],
                    imputer_for(run, train[run["seed"]]),
                    run["imputer"].startswith("surrogate"),
                )
                for run in due
            ]
            data = ReplicateData([train[run["seed"]] for run in due])
            result = fit(systems, data, seed=min(seeds), progress=False, **training)
        for model, run in zip(result.models, due, strict=True):
            test = synthetic(name, rows=rows, seed=1000 + run["seed"])
            shares = {"replicates": len(due), "seconds": clock["seconds"] / len(due)}
            records.add({**run, **judged(model, test, run["seed"]), **shares})


if __name__ == "__main__":
    main()
