"""S1, S2, S3: does a fitted explainer find the true features, and predict as well as one can?

    python benchmarks/selection.py                 # both mask laws, three data sets a set: an hour
    python benchmarks/selection.py --sets S3 --laws k-subset --data-sets 1
    python benchmarks/selection.py --laws path --data-sets 5     # by a table's defaults, a minute
    python benchmarks/selection.py --sets S3 --laws bernoulli --penalty 0.0255
    python benchmarks/selection.py --small         # to see that it runs

10,000 training rows (a tenth of them for validation), 10,000 test rows, standard Gaussian
imputation, networks as in the LEX paper, the library's defaults otherwise. The law "path" is of
independent masks too, by `ExplainerClassifier` and its defaults: one fit of every λ, read at the λ
that its validation rows choose.
"""

import argparse

import numpy as np
import torch
from record import Records, options_of, timed

from lexppl import ExplainerClassifier
from lexppl.data import synthetic
from lexppl.evaluation.mask_scores import selection_scores
from lexppl.evaluation.oracle import Oracle
from lexppl.inference import fit
from lexppl.inference.contexts import seeded
from lexppl.models import LEX, GaussianImputer
from lexppl.systems import lex

K, PENALTY, DRAWS = 5, 0.0225, 100
SAME = ("set", "law", "penalty", "seed", "epochs", "masks")
LINE = (
    "{set} {law:9s} data {seed}: TPR {tpr:.3f} FDR {fdr:.3f} control {control_flow:.3f} size "
    "{size:.2f} gap {gap:.4f} nats, {seconds:.0f} s"
).format


def by_defaults(train, test, seed: int) -> dict[str, float]:
    """The figures of `judged` of a table's explainer, and its λ."""
    explainer = ExplainerClassifier(penalty="auto", random_state=seed)
    explainer.fit(train.x.numpy(), train.y.numpy())
    kept = torch.as_tensor(explainer.importances(test.x.numpy())) > 0.5
    scores = selection_scores(kept.float().unsqueeze(0), test.truth, control=10)
    y = test.y.numpy()
    predicted = explainer.predict_proba(test.x.numpy())
    return {
        "tpr": scores.tpr,
        "fdr": scores.fdr,
        "control_flow": scores.control_flow,
        "size": scores.mean_size,
        "log_likelihood": float(np.log(predicted[np.arange(len(y)), y]).mean()),
        "accuracy": float((predicted.argmax(-1) == y).mean()),
        "chosen": explainer.penalty_,
    }


def judged(model: LEX, test, seed: int) -> dict[str, float]:
    """Selection, prediction and the oracle's figures on the test rows."""
    log_p, correct = [], []
    with seeded(seed), torch.no_grad():
        law = model.selector(test.x)
        drawn = law.sample((DRAWS,))
        for mask in drawn:
            y = model.predictor(model.imputer(test.x, mask).sample())
            log_p.append(y.log_prob(test.y))
            correct.append(y.probs)
    free = hasattr(law, "base_dist")
    masks = (law.mean > 0.5).float().unsqueeze(0) if free else drawn
    scores = selection_scores(masks, test.truth, control=10)
    likelihood = (
        torch.logsumexp(torch.stack(log_p), 0).mean().item()
        - torch.log(torch.tensor(float(DRAWS))).item()
    )
    return {
        "tpr": scores.tpr,
        "fdr": scores.fdr,
        "control_flow": scores.control_flow,
        "size": scores.mean_size,
        "log_likelihood": likelihood,
        "accuracy": float((torch.stack(correct).mean(0).argmax(-1) == test.y).float().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["S1", "S2", "S3"])
    parser.add_argument("--laws", nargs="+", default=["k-subset", "bernoulli"])
    parser.add_argument("--penalty", type=float, default=PENALTY, help="nats an entry kept")
    parser.add_argument("--data-sets", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="seed of the first data set")
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--masks", type=int, default=4)
    options = options_of(parser, small={"data_sets": 1, "epochs": 2})
    rows, batch = (1_000, 100) if options.small else (10_000, 1_000)
    laws = {"k-subset": {"k": K}, "bernoulli": {"penalty": options.penalty}, "path": {}}
    size = {"epochs": options.epochs, "masks": options.masks}
    training = {"valid": 0.1, "epochs": options.epochs, "batch_size": batch}

    def system_of(run):
        masks = {"masks": options.masks, "folds": 1, "towards": 0.5, "unit": 1.0}
        parts = {"hidden": (200, 200), "predictor_hidden": (200, 200, 200)}
        parts["imputer"] = GaussianImputer()
        return lex(11, classes=2, **masks, **parts, **laws[run["law"]])

    records = Records("selection", SAME, LINE, options)
    runs = (
        {"set": name, "law": law, **laws[law], "seed": seed, **({} if law == "path" else size)}
        for seed in range(options.first, options.first + options.data_sets)
        for law in options.laws
        for name in options.sets
    )
    for run in records.due(runs):
        name, seed = run["set"], run["seed"]
        train = synthetic(name, rows=rows, seed=seed)
        test = synthetic(name, rows=rows, seed=1000 + seed)
        best = Oracle(name).full(test.x, test.y)
        oracle = {"oracle_log_likelihood": best.log_likelihood, "oracle_accuracy": best.accuracy}
        with records.run(run) as record:
            record |= oracle
            if run["law"] == "path":
                with timed(record):
                    record |= by_defaults(train, test, seed)
            else:
                with timed(record):
                    result = fit(system_of(run), train, **training, seed=seed, progress=False)
                record |= {
                    **judged(result.model, test, seed),
                    "best_epoch": int(result.best_epoch[0]),
                    "collapse": result.collapse[0],
                }
            record["gap"] = record["oracle_log_likelihood"] - record["log_likelihood"]


if __name__ == "__main__":
    main()
