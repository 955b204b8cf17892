"""Do the intervals of `lexppl explain` cover? Fits in folds to many simulated data sets.

    python benchmarks/interval_coverage.py            # S1, S2, S3: 16 sets each of 1,000 rows
    python benchmarks/interval_coverage.py --sets S1 --data-sets 50
    python benchmarks/interval_coverage.py --small          # to see that it runs

Each data set is drawn anew and explained by LEX with the defaults of `lexppl explain`, five folds
of its rows, but for λ, which is the usual one and not of a path. What an interval is of is the mean
of the estimator over data sets, that of the other ones' estimates.
Gains are of the explainer's masks, by EVAL-X in the same folds. The distribution's own are recorded
besides: E[log p(y | x_S, x_g) − log p(y | x_S∖g)] for its own S of each row, exact but for the
200,000 rows that they are averaged over.
"""

import argparse
import math
import time
from functools import cache

import torch
from record import Records, options_of

from lexppl.data import synthetic
from lexppl.evaluation import Folds, Oracle, feature_gains, fit_evalx, gain_table
from lexppl.explanation import selection_table
from lexppl.explanation.reading.masks import masks_of
from lexppl.inference import entropy_unit
from lexppl.models import Grouping
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import plan_for
from lexppl.tabular.table_fit import fit_table

SAME = ("set", "rows", "data_set")
LEVELS = (0.9, 0.95)
FOLDS = 5
MASKS = 20
ORACLE_ROWS = 200_000


@cache
def own_gains(name: str, rows: int) -> dict[str, float]:
    """The distribution's gains of the features, in nats a row."""
    oracle, data = Oracle(name), synthetic(name, rows=rows, seed=0)
    truth = oracle.distribution.truth(data.x)
    gains = {}
    for g, feature in enumerate(data.feature_names):
        kept, hidden = truth.clone(), truth.clone()
        kept[:, g], hidden[:, g] = 1, 0
        both = oracle.log_likelihood(data.x, data.y, torch.stack([kept]))
        without = oracle.log_likelihood(data.x, data.y, torch.stack([hidden]))
        gains[feature] = float((both - without).mean())
    return gains


def estimates(name: str, rows: int, seed: int, epochs: int | None) -> dict[str, dict[str, object]]:
    """Selection and gain of each feature, with their intervals by level."""
    data = synthetic(name, rows=rows, seed=seed)
    x, y, features = data.x, data.y, data.x.shape[1]
    folds = Folds.of(y, FOLDS, seed)
    plan = plan_for(
        rows,
        features,
        epochs=epochs,
        replicates=FOLDS,
        seed=seed,
        unit=entropy_unit(y, 2),
        in_folds=True,
    )
    grouping = Grouping(range(features), data.feature_names)
    encoded = EncodedRows((x, y), None, grouping, data.feature_names, data.class_names, folds=folds)
    result = fit_table(plan, encoded).result
    posterior = folds.posterior(result, x, draws=0, seed=seed)
    judge = fit_evalx(
        (x, y),
        valid=None,
        grouping=grouping,
        hidden=plan.predictor_hidden,
        epochs=plan.epochs,
        batch_size=plan.batch_size,
        learning_rate=plan.schedule,
        weight_decay=plan.weight_decay / plan.unit**2,
        patience=None,
        row_weights=folds.weights,
        seed=seed,
        progress=False,
    )
    drawn = masks_of(folds.posterior(result, x, draws=MASKS, seed=seed))["mask"].values[0]
    masks = torch.from_numpy(drawn).to(x)
    gains = feature_gains(judge, x, y, masks, folds=folds, seed=seed)
    found: dict[str, dict[str, object]] = {f: {} for f in data.feature_names}
    for level in LEVELS:
        of = {
            "selection": selection_table(posterior, level=level),
            "gain": gain_table(gains, None, level=level),
        }
        for what, table in of.items():
            for feature, line in table.iterrows():
                found[str(feature)][what] = float(line.iloc[0])
                found[str(feature)][f"{what}_{level:g}"] = [line["lower"], line["upper"]]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=["S1", "S2", "S3"], default=["S1", "S2", "S3"])
    parser.add_argument("--rows", type=int, default=1000, help="of a data set, to fit on")
    parser.add_argument("--data-sets", type=int, default=16, help="of each kind")
    parser.add_argument("--epochs", type=int, help="of a fit; those of lexppl explain if left out")
    small = {"sets": ["S1"], "rows": 60, "data_sets": 3, "epochs": 2}
    options = options_of(parser, small=small)
    records = Records("coverage", SAME, line, options)
    runs = [
        {"set": name, "rows": options.rows, "data_set": seed}
        for seed in range(1, options.data_sets + 1)
        for name in options.sets
    ]
    for run in records.due(runs):
        with records.run(run) as record:
            start = time.process_time()
            # Seeds far apart: of fits and draws others follow from one.
            seed = 1000 * run["data_set"]
            record["features"] = estimates(run["set"], run["rows"], seed, options.epochs)
            oracle_rows = ORACLE_ROWS // 100 if options.small else ORACLE_ROWS
            record["own_gains"] = own_gains(run["set"], oracle_rows)
            record["cpu_seconds"] = time.process_time() - start


def line(**record) -> str:
    width = [
        f[f"{what}_0.95"][1] - f[f"{what}_0.95"][0]
        for what in ("selection", "gain")
        for f in record["features"].values()
    ]
    half = len(width) // 2
    return (
        f"{record['set']} {record['rows']} {record['data_set']}: 95 % intervals are "
        f"{math.fsum(width[:half]) / half:.3f} and {math.fsum(width[half:]) / half:.3f} wide; "
        f"{record['cpu_seconds']:.0f} s of a core"
    )


if __name__ == "__main__":
    main()
