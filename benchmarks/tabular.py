"""Tables of people, mushrooms, credits and blogs: accuracy with the k most important variables.

    python benchmarks/tabular.py                       # Adult: seven methods, three seeds
    python benchmarks/tabular.py --data mushroom german_credit creditcard blog
    python benchmarks/tabular.py --methods q_fit_global xtab --seeds 1
    python benchmarks/tabular.py --full                # networks of 200, 100 epochs
    python benchmarks/tabular.py --small               # every set and method, to see that it runs
    LEXPPL_DATA=/data python benchmarks/tabular.py     # where adult/adult.data.gz … lie

Adult is the 30,162 complete rows of adult.data; Blog is whether a post has a comment in the next
day, its 20,000 first rows. A fifth of the rows is held out. A variable's one-hot columns share one
mask entry. Each row keeps its k most important variables and EVAL-X, which has seen every mask,
predicts the label from them; Q-FIT's Table 2 has the accuracy of a judge of its own on the k most
important columns.
"""

import argparse
import os
import zipfile
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pandas as pd
from importances import importances, top
from record import Records, options_of

from lexppl.data import dataset_from_frame, read_table
from lexppl.evaluation import fidelity_scores, fit_evalx, fit_predictor
from lexppl.evaluation.evalx import accuracy_by_size
from lexppl.inference import Linear, fit
from lexppl.models import GaussianImputer, Grouping, regime_targets
from lexppl.systems import METHODS, system_for

FOLDER = Path(os.environ.get("LEXPPL_DATA", Path(__file__).parents[2] / "shared" / "data"))
ADULT = [
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation"),
    *("relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week"),
    *("native-country", "income"),
]
MUSHROOM = [
    *("class", "cap-shape", "cap-surface", "cap-color", "bruises", "odor", "gill-attachment"),
    *("gill-spacing", "gill-size", "gill-color", "stalk-shape", "stalk-root"),
    *("stalk-surface-above-ring", "stalk-surface-below-ring", "stalk-color-above-ring"),
    *("stalk-color-below-ring", "veil-type", "veil-color", "ring-number", "ring-type"),
    *("spore-print-color", "population", "habitat"),
]
GERMAN = [
    *("status", "duration", "history", "purpose", "amount", "savings", "employment", "rate"),
    *("personal", "debtors", "residence", "property", "age", "plans", "housing", "credits"),
    *("job", "liable", "telephone", "foreign", "class"),
]
SIZES = (1, 3, 5)
SAME = ("data", "method", "seed", "full")
AS_MEASURED = replace(METHODS["lex"], fixed={"folds": 1, "towards": 0.5})
"""LEX with one predictor, and annealed to the entropy alone."""

OPTIONS = {
    "q_fit_global": {},
    "q_fit": {},
    "l2x": {"k": 5},
    "real_x": {"penalty": 0.005},
    "lex": {"penalty": 0.005},
    "xtab": {},
    "fastshap": {},
}


def adult(path):
    return read_table(
        path,
        target="income",
        column_names=ADULT,
        missing=("?",),
        drop_missing=True,
        separator=",",
    )


def mushroom(path):
    """`?` stays a level of stalk-root: 2,480 rows have it."""
    return read_table(
        path,
        target="class",
        column_names=MUSHROOM,
        drop_constant=True,
        separator=",",
    )


def german_credit(path):
    return read_table(
        path,
        target="class",
        column_names=GERMAN,
        separator=" ",
    )


def creditcard(path):
    """All 492 frauds and 5,000 of the other transactions."""
    return read_table(path, target="Class")


def blog(path):
    with (
        zipfile.ZipFile(path) as archive,
        archive.open("blogData_train.csv") as file,
    ):
        frame = pd.read_csv(file, header=None, nrows=20_000)
    frame.columns = [*(f"v{column}" for column in range(1, frame.shape[1])), "comments"]
    frame["comments"] = frame["comments"] > 0
    return dataset_from_frame(frame, "comments", drop_constant=True, name="blog")


DATA = {
    "adult": (adult, FOLDER / "adult" / "adult.data.gz"),
    "mushroom": (mushroom, FOLDER / "mushroom" / "agaricus-lepiota.data.gz"),
    "german_credit": (german_credit, FOLDER / "german_credit" / "german.data.gz"),
    "creditcard": (creditcard, FOLDER / "creditcard" / "creditcard_sample.csv.gz"),
    "blog": (blog, FOLDER / "blogfeedback" / "BlogFeedback.zip"),
}
"""What reads a data set, and where it lies."""


def present(name):
    """Whether a data set is there; where it is not, say so."""
    _, path = DATA[name]
    if not path.is_file():
        print(f"{name} is skipped: no file {path}; set LEXPPL_DATA to the folder of the data sets")
    return path.is_file()


def training(rows, options):
    """Enough steps for the small tables: at least a thousand, unless `--small`."""
    epochs = 100 if options.full else 20 if rows > 10_000 else 60
    return {
        "valid": 0.1,
        "batch_size": min(500, max(32, rows // 40)),
        "epochs": 2 if options.small else epochs,
        "progress": False,
    }


def parts(whole, seed, small):
    """Training and test rows: a fifth is for the test; of `--small`, of 500 rows."""
    if small:
        whole, _ = whole.split(500 / len(whole), 1 - 500 / len(whole), seed=0)
    return whole.split(0.8, 0.2, seed=seed)


def fitted(method, train, given, shared):
    """A fit of the method; one that explains the model has the model's output for y."""
    sizes = {"features": train.x.shape[1], "classes": train.n_classes}
    settings = {**sizes, **given, **OPTIONS[method]}
    explains = METHODS[method].explains_model or method == "l2x"
    regime = "self post-hoc" if explains else "free in-situ"
    y = regime_targets(regime, train.x, train.y, predictor=given["black_box"])
    rate = Linear(1e-3, 5e-5, begin=0.5)
    if method == "lex":
        settings["imputer"] = GaussianImputer()
    system = system_for(AS_MEASURED, settings) if method == "lex" else system_for(method, settings)
    return fit(system, (train.x, y), learning_rate=rate, weight_decay=1e-3, **shared)


def line(**record):
    judged, agreed = ([round(a, 3) for a in record[key]] for key in ("evalx_accuracy", "fs_m"))
    return (
        f"{record['data']} {record['seed']} {record['method']:13s} EVAL-X {judged} FS-M {agreed} "
        f"{record['order'][:5]} {record['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=["adult"])
    parser.add_argument("--methods", nargs="+", choices=list(OPTIONS), default=list(OPTIONS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--full", action="store_true")
    options = options_of(parser, small={"data": list(DATA), "seeds": 1})
    width = (200, 200) if options.full else (64, 64)
    records = Records("tabular", SAME, line, options)
    runs = (
        {"data": name, "method": method, "seed": seed, "full": options.full}
        for name in filter(present, options.data)
        for seed in range(1, 1 + options.seeds)
        for method in options.methods
    )
    for name, of_data in groupby(records.due(runs), itemgetter("data")):
        reads, path = DATA[name]
        whole = reads(path)
        for seed, due in groupby(of_data, itemgetter("seed")):
            train, test = parts(whole, seed, options.small)
            shared = {**training(len(train), options), "seed": seed}
            judge = fit_evalx(train, hidden=width, **shared)
            full = fit_predictor(train, hidden=width, **shared)
            grouping = Grouping(list(train.groups), train.entry_names)
            given = {"black_box": full.predictor, "grouping": grouping}
            given |= {"hidden": width, "predictor_hidden": width}
            for run in due:
                with records.run(run) as record:
                    result = fitted(run["method"], train, given, shared)
                    ranking = importances(result, test.x)
                    _, accuracy = accuracy_by_size(judge, ranking, test.x, test.y, SIZES, seed=seed)
                    agreement = [
                        fidelity_scores(full.predictor, test.x, top(ranking, k), grouping=grouping)
                        for k in SIZES
                    ]
                    order = ranking.argsort(-1, descending=True).argsort(-1).double().mean(0)
                    record |= {
                        "epochs": shared["epochs"],
                        "k": list(SIZES),
                        "evalx_accuracy": list(accuracy),
                        "fs_m": [scores.fs_m for scores in agreement],
                        "order": [train.entry_names[i] for i in order.argsort().tolist()],
                        "full_accuracy": full.scores(test.x, test.y).accuracy,
                        "collapse": result.collapse[0],
                    }


if __name__ == "__main__":
    main()
