"""What differs between two fitted models: planted changes, and none.

    python benchmarks/changes.py                 # 40 pairs without a change, 20 of each change
    python benchmarks/changes.py --changes drift --pairs 5
    python benchmarks/changes.py --changes fairness privacy   # Adult, as benchmarks/constraints.py
    python benchmarks/changes.py --small         # to see that it runs

Eight independent normal columns; log-odds or a mean `1.5 x1 − 1.2 x2 + 1.5 x3 𝟙[x4 > 0]`. a and b
are fitted on 1,000 rows each; refits of a, five, on its rows drawn with replacement; 600 new rows
are asked of. *none*: b is of other rows of the same law. *cosmetic*: b is of the same rows, its
columns times 10 and in another order, with another seed. *dropped*: b does not read x2. *flip*:
where x5 > ½ the sign of x1 is turned. *drift*: 1.5 x6 more. Models by turns: boosted trees, a
forest, logistic regression (no flip, which it cannot learn); of responses boosted trees.

*fairness*, *privacy*: Adult's unconstrained model of 2,000 rows and those under each constraint of
`constraints.py`, on 600 other rows: the mean size of the difference, beside that between refits.
"""

import argparse
from argparse import Namespace

import numpy as np
import torch
from constraints import NOISE, RULES, adult, constrained
from record import Records, options_of
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression

from lexppl.evaluation import FeatureGroups, explain_change

COLUMNS, ROWS, NEW, REFITS = 8, 1_000, 600, 5
CHANGED = {"none": [], "cosmetic": [], "dropped": ["x2"], "flip": ["x1", "x5"], "drift": ["x6"]}
CONSTRAINTS = {"fairness": (0.0, *RULES), "privacy": (0.0, *NOISE)}
EPOCHS = 10  # Of a private network
SAME = ("change", "task", "pair")


def line(**record):
    if record["change"] in CONSTRAINTS:
        return f"{record['change']} {record['constraint']:g}: size {record['size']:.4f} ± " + (
            f"{record['error']:.4f}, of refits {record['size_of_refits']:.4f}"
        )
    found = ", ".join(record["found"]) or "nothing"
    return f"{record['change']} {record['task']} {record['pair']} ({record['model']}): {found}"


def table_of(rng, change, task):
    """Rows and a target of the law with a change."""
    x = rng.normal(size=(ROWS, COLUMNS))
    signal = 1.5 * x[:, 0] - 1.2 * x[:, 1] + 1.5 * x[:, 2] * (x[:, 3] > 0)
    if change == "flip":
        signal -= 3.0 * x[:, 0] * (x[:, 4] > 0.5)
    if change == "drift":
        signal += 1.5 * x[:, 5]
    if task == "responses":
        return x, signal + rng.normal(size=ROWS)
    return x, (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-signal))).astype(int)


def models(task, change):
    """Names of the models, by turns."""
    if task == "responses":
        return ["boosted trees"]
    return ["boosted trees", "forest", "logistic regression"][: 2 if change == "flip" else 3]


def fitted(model, x, y, columns, seed, scale=1.0):
    """Answers of a model that reads some columns in some order, times a number."""
    few = {"max_iter": 60, "max_leaf_nodes": 8, "random_state": seed}
    if model == "forest":
        estimator = RandomForestClassifier(60, min_samples_leaf=10, random_state=seed)
    elif model == "logistic regression":
        estimator = LogisticRegression(max_iter=1_000)
    elif y.dtype == float:
        estimator = HistGradientBoostingRegressor(**few)
    else:
        estimator = HistGradientBoostingClassifier(**few)
    estimator.fit(scale * x[:, columns], y)
    ask = estimator.predict if y.dtype == float else estimator.predict_proba
    return lambda new: ask(scale * new[:, columns])


def record_of(change, task, pair):
    """What is found of a pair of models."""
    rng = np.random.default_rng([pair, list(CHANGED).index(change), len(task)])
    names = models(task, change)
    model, every = names[pair % len(names)], list(range(COLUMNS))
    rows = table_of(rng, "none", task)
    a = fitted(model, *rows, every, seed=0)
    if change == "cosmetic":
        b = fitted(model, *rows, list(rng.permutation(every)), seed=1, scale=10.0)
    else:
        read = [c for c in every if change != "dropped" or c != 1]
        b = fitted(model, *table_of(rng, change, task), read, seed=1)
    new, refits = rng.normal(size=(NEW, COLUMNS)), []
    for seed in range(REFITS):
        drawn = rng.integers(0, ROWS, ROWS)
        refits.append(fitted(model, rows[0][drawn], rows[1][drawn], every, seed=2 + seed)(new))
    x = torch.from_numpy(new).float()
    found = explain_change(a(new), b(new), x, refits=refits, seed=pair)
    table = found.table()
    return {
        "model": model,
        "found": sorted(table.index[table["found"]]),
        "least_p": float(table["p"].min()),
        "size": float(found.size.mean()),
        "size_of_refits": float(found.sizes_of_refits.mean()),
        "share_of_rows": found.share_of_rows,
    }


def constraint_record(study, task, pair):
    """How far a constrained model of Adult is from the unconstrained one, beside its refits."""
    data, white = adult(2_600)
    draw, old = np.random.default_rng(pair), np.arange(2_000)

    def probabilities(number, rows, seed):
        torch.manual_seed(seed)
        some = Namespace(x=data.x[rows], y=data.y[rows])
        model = constrained(study, number, some, white[rows], Namespace(private_epochs=EPOCHS))[0]
        with torch.no_grad():
            return model(data.x[2_000:]).probs.double()

    number = CONSTRAINTS[study][pair]
    a, b = probabilities(0.0, old, 0), probabilities(number, old, 1)
    refits = [probabilities(0.0, draw.integers(0, 2_000, 2_000), 2 + r) for r in range(REFITS)]
    every = FeatureGroups(("all",), (tuple(range(data.x.shape[1])),))
    found = explain_change(a, b, data.x[2_000:], refits=refits, groups=every)
    size = found.sizes_of_refits.mean(1)
    return {
        "constraint": number,
        "size": float(found.size.mean()),
        "error": float(found.size.std() / np.sqrt(len(found.size))),
        "size_of_refits": float(size.mean()),
        "largest_of_refits": float(size.max()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--changes", nargs="+", choices=[*CHANGED, *CONSTRAINTS], default=list(CHANGED)
    )
    parser.add_argument("--tasks", nargs="+", default=["labels", "responses"])
    parser.add_argument("--pairs", type=int, default=20)
    small = {"changes": ["none", "drift"], "tasks": ["labels"], "pairs": 1}
    options = options_of(parser, small=small)
    records = Records("changes", SAME, line, options)
    wanted = [
        {"change": change, "task": task, "pair": pair}
        for task in options.tasks
        for change in options.changes
        if change in CHANGED
        for pair in range(options.pairs * (2 if change == "none" and not options.small else 1))
    ]
    wanted += [
        {"change": study, "task": "adult", "pair": pair}
        for study in options.changes
        for pair in range(len(CONSTRAINTS.get(study, ())))
    ]
    for run in records.due(wanted):
        with records.run(run) as record:
            record |= (record_of if run["change"] in CHANGED else constraint_record)(*run.values())


if __name__ == "__main__":
    main()
