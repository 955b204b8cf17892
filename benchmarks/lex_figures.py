"""LEX's Figures 3 and 4: imputers at several rates, and the constant that is imputed.

    python benchmarks/lex_figures.py --figure 3     # rates 3, 5, 7 of 11 x imputers x S1, S2, S3
    python benchmarks/lex_figures.py --figure 4     # constants -10 ... 9 at rate 5 of 11, S3
    python benchmarks/lex_figures.py --figure 3 --full      # rates 2 to 9 of 11, 1,000 epochs

Exact k-subset masks, k = 11 x rate, judged on 100 draws a row of 10,000 test rows. Rates and data
sets, or constants, are replicates of one fit: each has its own k, its own imputer and its own rows.
What is already recorded is not run again.
"""

import argparse
import time

import torch
from record import add, read

from lexppl.data import synthetic
from lexppl.evaluation import selection_scores
from lexppl.inference import Linear, LossTerm, ReplicateData, Stage, System, annealed, fit
from lexppl.inference.contexts import seeded
from lexppl.models import LEX, MLP, ConstantImputer, KSubsetSelector
from lexppl.models.imputers.by_name import imputer_of
from lexppl.models.table_parts import table_predictor
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


def plan(figure, sets, imputers, rates, seeds, constants):
    """Fits as lists of replicates: (set, imputer, k, constant, seed)."""
    for name in sets:
        if figure == 3:
            for imputer in imputers:
                yield [(name, imputer, k, 0.0, seed) for seed in seeds for k in rates]
        else:
            for imputer in (one for one in imputers if "constant" in one):
                for seed in seeds:
                    yield [(name, imputer, 5, float(c), seed) for c in constants]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", type=int, choices=(3, 4), required=True)
    parser.add_argument("--sets", nargs="+", help="S1 S2 S3 for Figure 3, S3 for Figure 4")
    parser.add_argument("--imputers", nargs="+", default=list(IMPUTERS))
    parser.add_argument("--constants", type=int, nargs="+", default=list(range(-10, 10)))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--full", action="store_true")
    options = parser.parse_args()
    sets = options.sets or (["S1", "S2", "S3"] if options.figure == 3 else ["S3"])
    rates = range(2, 10) if options.full else (3, 5, 7)
    epochs, batch = (1000, 1000) if options.full else (EPOCHS, BATCH)
    rate = 1e-4 if options.full else Linear(1e-3, 5e-5, begin=0.5)
    done = {tuple(r[f] for f in SAME) for r in read("lex_figures")}
    fits = plan(options.figure, sets, options.imputers, rates, options.seeds, options.constants)
    for wanted in fits:
        due = [one for one in wanted if (options.figure, *one, epochs) not in done]
        if not due:
            continue
        start = time.perf_counter()
        train = {seed: synthetic(name, rows=10_000, seed=seed) for name, *_, seed in due}
        systems = []
        for _, imputer, k, constant, seed in due:
            if "constant" in imputer:
                hides = ConstantImputer(constant)
            else:
                hides = imputer_of(imputer, train[seed].x, seed)
            systems.append(system(k, hides, imputer.startswith("surrogate")))
        result = fit(
            systems,
            ReplicateData([train[seed] for *_, seed in due]),
            valid=0.1,
            epochs=epochs,
            batch_size=batch,
            learning_rate=rate,
            seed=min(seed for *_, seed in due),
            progress=False,
        )
        seconds = (time.perf_counter() - start) / len(due)
        for model, (name, imputer, k, constant, seed) in zip(result.models, due, strict=True):
            test = synthetic(name, rows=10_000, seed=1000 + seed)
            record = {
                "figure": options.figure,
                "set": name,
                "imputer": imputer,
                "k": k,
                "constant": constant,
                "seed": seed,
                "epochs": epochs,
                **judged(model, test, seed),
                "replicates": len(due),
                "seconds": seconds,
            }
            add("lex_figures", record, SAME)
            print(
                "{set} {imputer} {constant:g} k = {k} data {seed}: TPR {tpr:.3f} FPR {fpr:.3f} "
                "CFSR {cfsr:.3f}, {seconds:.0f} s".format(**record),
                flush=True,
            )


if __name__ == "__main__":
    main()
