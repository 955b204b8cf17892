"""Adult: accuracy with the k most important variables, and their order over seeds.

    python benchmarks/adult.py                       # seven methods, three seeds
    python benchmarks/adult.py --methods q_fit_global xtab --seeds 1
    LEXPPL_DATA=/data python benchmarks/adult.py     # where adult/adult.data.gz lies

Census income (UCI): the 30,162 complete rows of adult.data, a fifth of them held out. A variable's
one-hot columns share one mask entry. Each row keeps its k most important variables and EVAL-X,
which has seen every mask, predicts the label from them; Q-FIT's Table 2 has the accuracy of a judge
of its own on the k most important columns.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from record import add, read

from lexppl.data import read_table
from lexppl.evaluation import accuracy_by_size, fidelity_scores, fit_evalx, fit_full
from lexppl.inference import Linear, fit
from lexppl.inference.scope import seeded
from lexppl.models import METHODS, Grouping, Settings, regime_targets, system_for

FOLDER = Path(os.environ.get("LEXPPL_DATA", Path(__file__).parents[2] / "shared" / "data"))
COLUMNS = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]
SIZES = (1, 3, 5)
OPTIONS = {
    "q_fit_global": {},
    "q_fit": {},
    "l2x": {"k": 5},
    "real_x": {"penalty": 0.005},
    "lex": {"penalty": 0.005},
    "xtab": {},
    "fast_shap": {},
}


def adult(seed):
    data = read_table(
        FOLDER / "adult" / "adult.data.gz",
        target="income",
        column_names=COLUMNS,
        missing=("?",),
        drop_missing=True,
        separator=",",
    )
    return data.split(0.8, 0.2, seed=seed)


def importances(result, x):
    with seeded(0), torch.no_grad():
        if hasattr(result.model, "selector"):
            law = result.model.selector(x)
            return getattr(law, "logits", law.mean)
        if result.guides[0] is not None:
            return result.guides[0].law.mean.expand(len(x), -1)
        from lexppl import explain

        drawn = explain(result, x, draws=1, rows_per_chunk=1000)
        return torch.from_numpy(drawn["sample_stats"]["selection_probability"].values[0]).abs()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=list(OPTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    shared = {"valid": 0.1, "batch_size": 500, "progress": False}
    hidden = {"hidden": (64, 64), "predictor_hidden": (64, 64)}
    done = {(r["method"], r["seed"]) for r in read("adult")}
    for seed in range(1, 1 + options.seeds):
        due = [m for m in options.methods if (m, seed) not in done]
        if not due:
            continue
        train, test = adult(seed)
        small = {"hidden": (64, 64), "epochs": 20, "seed": seed, **shared}
        judge = fit_evalx(train, **small)
        full = fit_full(train, **small)
        grouping = Grouping(list(train.groups), train.group_names)
        for method in due:
            start = time.perf_counter()
            settings = Settings(
                train.x.shape[1], 2, model=full.predictor, grouping=grouping, **hidden,
                **OPTIONS[method],
            )  # fmt: skip
            explains = METHODS[method].explains_model or method == "l2x"
            regime = "self post-hoc" if explains else "free in-situ"
            y = regime_targets(regime, train.x, train.y, predictor=full.predictor)
            result = fit(
                system_for(method, settings),
                (train.x, y),
                epochs=20,
                learning_rate=Linear(1e-3, 5e-5, begin=0.5),
                seed=seed,
                **shared,
            )
            ranking = importances(result, test.x)
            _, accuracy = accuracy_by_size(judge, ranking, test.x, test.y, SIZES, seed=seed)
            place = ranking.argsort(-1, descending=True).argsort(-1)
            agreement = [
                fidelity_scores(full.predictor, test.x, (place < k).float(), grouping=grouping).fs_m
                for k in SIZES
            ]
            mean_place = place.double().mean(0)
            record = {
                "method": method,
                "seed": seed,
                "k": list(SIZES),
                "evalx_accuracy": list(accuracy),
                "fs_m": agreement,
                "order": [train.group_names[i] for i in mean_place.argsort().tolist()],
                "full_accuracy": full.scores(test.x, test.y).accuracy,
                "collapse": result.collapse[0],
                "seconds": time.perf_counter() - start,
            }
            add("adult", record, ("method", "seed"))
            print(
                f"{seed} {method:13s} EVAL-X {[round(a, 3) for a in accuracy]} FS-M "
                f"{[round(a, 3) for a in agreement]} {record['order'][:5]} "
                f"{record['seconds']:.0f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
