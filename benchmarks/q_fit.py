"""Q-FIT by row: the model as it is given, and with batch norms that go on learning.

    python benchmarks/q_fit.py                         # Syn1 to Syn6, five seeds
    python benchmarks/q_fit.py --sets Syn4 --seeds 1   # one set
    python benchmarks/q_fit.py --kl-weights 0.0005 --explained adapted
    python benchmarks/q_fit.py --full                  # the given model from full batches
    python benchmarks/q_fit.py --small                 # to see that it runs

The given model is the released code's: linear, batch norm, linear, ReLU, batch norm, linear, of
200, from 500 steps of SGD (1e-3, momentum .9, weight decay 5e-4). Those steps are of 1,000 rows
here, a seventh of the time, and of all 8,000 with `--full`. Labels of Syn1 to Syn3 are the likelier
ones, and f_C has its constants of Q-FIT's code there, as in its table; those of Syn4 to Syn6 are
drawn. Four draws, Adam at 1e-3, batches of 500, 20 epochs; the weight of the divergence is the
code's, one over the batch (1/500), or 1/2000. Rankings by the mean share are
cut at each row's number of relevant features, the control among them; 2,000 test rows.

"frozen" explains the model that is given. "adapted" explains another: its linear layers with batch
norms that have learned, beside the explainer, to read rows whose features share out a unit.
"""

import argparse

import numpy as np
import torch
from importances import top
from record import Records, options_of
from sklearn.metrics import matthews_corrcoef
from torch import nn

from lexppl.data import synthetic
from lexppl.inference import fit
from lexppl.inference.contexts import seeded
from lexppl.models import CategoricalLikelihood, Predictor
from lexppl.systems import q_fit

SETS = ("Syn1", "Syn2", "Syn3", "Syn4", "Syn5", "Syn6")
NOISELESS = ("Syn1", "Syn2", "Syn3")
EXPLAINED = {"adapted": "normalisation", "frozen": None}
WIDTH, STEPS, ROWS = 200, 500, 1000
SAME = ("set", "seed", "explained", "kl_weight", "step_rows")
LINE = (
    "{set} {seed} {explained:8s} KL × {kl_weight} given {accuracy:.3f} MCC {mcc:.3f} "
    "{seconds:.0f} s"
).format


def data_of(name, rows, seed):
    noiseless = name in NOISELESS
    constant = "q-fit-code" if noiseless else "l2x-code"
    return synthetic(name, rows, seed, constant, likeliest=noiseless)


def given_model(train, seed, steps, step_rows):
    """The model that is explained, briefly trained as the released code does it."""
    with seeded(seed):
        network = nn.Sequential(
            nn.Linear(train.x.shape[1], WIDTH),
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.ReLU(),
            nn.BatchNorm1d(WIDTH),
            nn.Linear(WIDTH, 2),
        )
        options = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
        optimizer = torch.optim.SGD(network.parameters(), **options)
        for _ in range(steps):
            rows = torch.randperm(len(train))[:step_rows]
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(train.x[rows]), train.y[rows]).backward()
            optimizer.step()
    return Predictor(network.eval(), CategoricalLikelihood())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--explained", nargs="+", default=list(EXPLAINED), choices=EXPLAINED)
    parser.add_argument("--kl-weights", nargs="+", type=float, default=[0.002, 0.0005])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--full", action="store_true", help="the given model from full batches")
    options = options_of(
        parser, small={"sets": ["Syn4"], "seeds": 1, "epochs": 1, "kl_weights": [0.002]}
    )
    rows, steps = (500, 5) if options.small else (8000, STEPS)
    step_rows = rows if options.full else min(ROWS, rows)
    records = Records("q_fit", SAME, LINE, options)
    runs = records.due(
        {
            "set": name,
            "seed": seed,
            "explained": explained,
            "kl_weight": weight,
            "step_rows": step_rows,
        }
        for seed in range(1, 1 + options.seeds)
        for name in options.sets
        for weight in options.kl_weights
        for explained in options.explained
    )
    models = {}
    for run in runs:
        name, seed = run["set"], run["seed"]
        train, test = data_of(name, rows, seed), data_of(name, 2000, 100 + seed)
        if (name, seed) not in models:
            models = {(name, seed): given_model(train, seed, steps, step_rows)}
        given = models[name, seed]
        adapt = EXPLAINED[run["explained"]]
        with records.run(run) as record:
            system = q_fit(11, given, adapt=adapt, kl_weight=run["kl_weight"], samples=4)
            result = fit(
                system, train, valid=None, epochs=options.epochs, batch_size=500,
                learning_rate=1e-3, weight_decay=0.0, seed=seed, progress=False,
            )  # fmt: skip
            with torch.no_grad():
                shares = result.model.selector(test.x).mean
                right = given(test.x).probs.argmax(-1) == test.y
            chosen = top(shares, test.truth.sum(-1).long())
            truth = np.asarray(test.truth).ravel()
            record["mcc"] = float(matthews_corrcoef(truth, np.asarray(chosen).ravel()))
            record["accuracy"] = float(right.float().mean())
            record["given_steps"], record["epochs"] = steps, options.epochs


if __name__ == "__main__":
    main()
