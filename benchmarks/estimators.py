"""Gradient estimators at equal cost: their variance, and what a fit with each reaches.

    python benchmarks/estimators.py                      # S1, S2, S3, three seeds: two hours
    python benchmarks/estimators.py --sets S3 --seeds 1 --estimators "leave one out"
    python benchmarks/estimators.py --k 5                # of exact k-subsets
    python benchmarks/estimators.py --small              # to see that it runs

Bernoulli masks, the bound with L = 4, a penalty, twelve predictor evaluations a row and step for
each estimator (eight for DisARM, whose pairs come in twos), 60 epochs of batches of 200 (as many
steps as selection.py takes); otherwise as in selection.py. The variance is that of the gradient of
the selector's parameters, summed over them, in nats² a row, over repeated draws on one batch of
1,000 rows. With `--k` masks are exact k-subsets, of which the marginal straight-through estimator
is SIMPLE (Ahmed et al. 2023).
"""

import argparse
import copy
from itertools import groupby
from operator import itemgetter

import torch
from record import Records, options_of
from selection import PENALTY, judged

from lexppl.data import synthetic
from lexppl.evaluation import Oracle
from lexppl.inference import (
    REBAR,
    DisARM,
    LeaveOneOut,
    LossTerm,
    MarginalStraightThrough,
    NestedIWAE,
    Pathwise,
    ScoreFunction,
    SelfNormalized,
    Stage,
    StraightThrough,
    TrainingOptions,
    TunedControl,
    annealed,
    fit,
)
from lexppl.inference.contexts import program_settings, seeded
from lexppl.systems import lex

CONTROL = ("temperature", "scale")
MASKS, REPEATS, BATCH = 4, 20, 200
SAME = ("estimator", "set", "k", "seed", "epochs")
LINE = (
    "{set} {k} {seed} {estimator:30s} variance {variance[0]:.1e} {variance[1]:.1e} "
    "{variance[2]:.1e} TPR {tpr:.3f} FDR {fdr:.3f} control {control_flow:.3f} gap {gap:.4f} "
    "{seconds:.0f} s"
).format
ESTIMATORS = {
    "leave one out": (LeaveOneOut(), 3),
    "score function": (ScoreFunction(), 3),
    "score function, baseline -0.5": (ScoreFunction(baseline=-0.5), 3),
    "REBAR(0.5)": (REBAR(0.5), 1),
    "REBAR, tuned from 0.5": (REBAR(control=TunedControl(0.5)), 1),
    "DisARM": (DisARM(), 2),
    "pathwise(0.5)": (Pathwise(0.5), 3),
    "straight-through(0.5)": (StraightThrough(0.5), 3),
    "marginal straight-through": (MarginalStraightThrough(), 3),
    "self-normalised": (SelfNormalized(), 3),
}
OF_SUBSETS = (
    "leave one out",
    "score function",
    "score function, baseline -0.5",
    "marginal straight-through",
    "self-normalised",
)
"""Those that need no relaxation of the law."""


def variance(model: torch.nn.Module, objective: NestedIWAE, data, seed: int) -> float:
    """Summed variance of the selector's gradient on the first 1,000 rows."""
    parameters = list(model.selector.parameters())
    x, y = data.x[:1000], data.y[:1000]
    gradients = []
    with seeded(seed), program_settings(validate=False), torch.enable_grad():
        for _ in range(REPEATS):
            loss = objective.differentiable_loss(model, None, x, y) / len(x)
            parts = torch.autograd.grad(loss, parameters)
            gradients.append(torch.cat([part.flatten() for part in parts]))
    return float(torch.stack(gradients).var(0).sum())


def fitted(label, train, k, epochs, seed):
    """A fit with the estimator, its objective, the variances at the start, half way and the end."""
    estimator, samples = ESTIMATORS[label]
    law = {"penalty": PENALTY} if k is None else {"k": k}
    # Tuned controls are the fit's own: what is watched is the objective that it has.
    objective = annealed(masks=MASKS, samples=samples, estimator=copy.deepcopy(estimator))
    models: list[torch.nn.Module] = []
    variances: list[float] = []
    watched = (0, epochs // 2, epochs - 1)

    def build():
        models.append(lex(11, classes=2, **law, towards=0.5).program())
        return [Stage([LossTerm(models[-1], objective)])]

    def watch(epoch):
        if epoch.number in watched:
            at = objective.at(epoch.progress)
            found = variance(models[-1], at, train, epoch.number)
            variances.extend([found] * watched.count(epoch.number))

    training = {"valid": 0.1, "epochs": epochs, "batch_size": BATCH, "seed": seed}
    result = fit(
        None,
        train,
        stages=build,
        training=TrainingOptions(callbacks=[watch]),
        progress=False,
        **training,
    )
    return result, objective, variances


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["S1", "S2", "S3"])
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS)
    parser.add_argument("--k", type=int, help="entries of an exact k-subset; free masks if none")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    options = options_of(parser, small={"sets": ["S3"], "seeds": 1, "epochs": 3})
    rows = 1_000 if options.small else 10_000
    records = Records("estimators", SAME, LINE, options)
    runs = (
        {"estimator": label, "set": name, "k": options.k, "seed": seed, "epochs": options.epochs}
        for seed in range(1, 1 + options.seeds)
        for name in options.sets
        for label in options.estimators or (ESTIMATORS if options.k is None else OF_SUBSETS)
    )
    for (seed, name), due in groupby(records.due(runs), itemgetter("seed", "set")):
        train = synthetic(name, rows=rows, seed=seed)
        test = synthetic(name, rows=rows, seed=1000 + seed)
        best = Oracle(name).full(test.x, test.y)
        for run in due:
            label = run["estimator"]
            estimator, samples = ESTIMATORS[label]
            with records.run(run) as record:
                result, objective, variances = fitted(label, train, options.k, options.epochs, seed)
                record |= {
                    "unbiased": estimator.unbiased,
                    "masks": MASKS,
                    "evaluations": MASKS * samples * (3 if label.startswith("REBAR") else 1),
                    "variance": variances,
                    **judged(result.model, test, seed),
                    "collapse": result.collapse[0],
                    "control": [
                        {part: float(getattr(m, part).detach()) for part in CONTROL}
                        for m in objective.control_parameters
                    ],
                }
                record["gap"] = best.log_likelihood - record["log_likelihood"]


if __name__ == "__main__":
    main()
