"""An explainable Cox model against the network that sees everything, and against Cox's own.

    python benchmarks/cox.py                          # two real sets, five splits; simulated, two
    python benchmarks/cox.py --data gbsg2 --seeds 1
    python benchmarks/cox.py --small                  # every set, to see that it runs

A real set is split at random, a fifth to choose the epoch and a quarter to judge. The explainer and
the full network have the same predictor and the same fits; what differs is that the one hides what
its masks do not keep. Concordance is Harrell's, of the log hazard ratios averaged over replicates.
"""

import argparse

import torch
from record import Records, options_of

from lexppl import explain
from lexppl.data import SimulatedSurvival, load, synthetic_survival
from lexppl.evaluation import concordance_index, log_hazard_ratio, selection_scores
from lexppl.inference import NestedIWAE, fit
from lexppl.models import CoxLikelihood, MarginalImputer, UnmaskedPredictor
from lexppl.models.grouping import Grouping
from lexppl.models.predictor import table_predictor
from lexppl.systems import lex

REAL = ("gbsg2", "whas500")
SIMULATED = "simulated"
SAME = ("data", "seed")
HIDDEN = (32, 32)
SIZES = {"epochs": 200, "replicates": 4, "learning_rate": 3e-3, "weight_decay": 1e-2}
OF_SIMULATED = {"epochs": 300, "replicates": 1, "learning_rate": 3e-3, "weight_decay": 1e-3}
SMALL = {"epochs": 3, "replicates": 2}
ROWS = 4000


def parts(name: str, seed: int, rows: int):
    """Rows to learn from, to choose by and to judge on."""
    if name == SIMULATED:
        sizes = (rows, rows // 4, rows)
        return tuple(synthetic_survival(n, 3 * seed + part) for part, n in enumerate(sizes))
    return load(name).split(0.55, 0.2, 0.25, seed=seed)


def linear(train, judged) -> float:
    """Concordance of Cox's own model of the same columns."""
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.util import Surv

    y = Surv.from_arrays(train.y[:, 1].numpy() == 1, train.y[:, 0].double().numpy())
    model = CoxPHSurvivalAnalysis(alpha=1e-3, ties="efron").fit(train.x.double().numpy(), y)
    risk = torch.as_tensor(model.predict(judged.x.double().numpy()))
    return concordance_index(risk, judged.y)


def judged(result, data) -> float:
    """Concordance of a fit on held-out rows."""
    with torch.no_grad():
        risk = log_hazard_ratio(result, data.x, masks=100).mean(0)
    return concordance_index(risk, data.y)


def compared(run: dict, options: argparse.Namespace) -> dict:
    """One division of a set."""
    name, seed = run["data"], run["seed"]
    train, valid, test = parts(name, seed, 200 if options.small else ROWS)
    of_set = OF_SIMULATED if name == SIMULATED else SIZES
    sizes = {**of_set, **(SMALL if options.small else {})}
    how = {"valid": valid, "seed": seed, "progress": False, "batch_size": 500, **sizes}
    how["weight_decay"] = 1e-3
    unit = float(train.y[:, 1].mean())
    model = lex(
        train.n_features,
        classes=None,
        likelihood=CoxLikelihood(),
        unit=unit,
        penalty=0.02 * unit,
        imputer=MarginalImputer(train.x),
        grouping=Grouping(train.groups, train.entry_names),
        hidden=HIDDEN,
        predictor_hidden=HIDDEN,
    )
    full = UnmaskedPredictor(
        table_predictor(train.n_features, None, HIDDEN, likelihood=CoxLikelihood())
    )
    explained = fit(model, train, **how)
    network = fit(full, train, objective=NestedIWAE(1), **how)
    posterior = explain(explained, test.x, draws=0)
    kept = posterior["sample_stats"]["selection_probability"]
    record = {
        "rows": len(train),
        "events": int(train.y[:, 1].sum()),
        "entries": train.n_entries,
        "explainer": judged(explained, test),
        "network": judged(network, test),
        "linear": linear(train, test),
        "kept": float(kept.sum("feature").mean()),
        "importance": dict(
            zip(train.entry_names, kept.mean(("chain", "row")).values.tolist(), strict=True)
        ),
    }
    if name == SIMULATED:
        selected = torch.as_tensor(kept.values[0] > 0.5)
        scores = selection_scores(selected.to(test.x.dtype), test.truth)
        oracle = SimulatedSurvival().log_hazard(test.x)
        record |= {
            "tpr": scores.tpr,
            "fdr": scores.fdr,
            "truth": concordance_index(oracle, test.y),
        }
    return record


def line(**record) -> str:
    found = f"; TPR {record['tpr']:.3f}, FDR {record['fdr']:.3f}" if "tpr" in record else ""
    return (
        f"{record['data']} {record['seed']}: explainer {record['explainer']:.3f}, network "
        f"{record['network']:.3f}, linear {record['linear']:.3f}; {record['kept']:.1f} of "
        f"{record['entries']} kept{found}; {record['seconds']:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=[*REAL, SIMULATED])
    parser.add_argument("--seeds", type=int, help="divisions of each; five, of the simulated two")
    options = options_of(parser, {"seeds": 1})
    records = Records("cox", SAME, line, options)
    runs = [
        {"data": name, "seed": seed}
        for name in options.data
        for seed in range(options.seeds or (2 if name == SIMULATED else 5))
    ]
    for run in records.due(runs):
        with records.run(run) as record:
            record.update(compared(run, options))


if __name__ == "__main__":
    main()
