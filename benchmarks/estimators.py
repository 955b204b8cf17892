"""Gradient estimators at equal cost: their variance, and what a fit with each reaches.

    python benchmarks/estimators.py                      # S1, S2, S3, three seeds: two hours
    python benchmarks/estimators.py --sets S3 --seeds 1 --estimators "leave one out"

Bernoulli masks, the bound with L = 4, a penalty, twelve predictor evaluations a row and step for
each estimator (eight for DisARM, whose pairs come in twos), 60 epochs of batches of 200 (as many
steps as selection.py takes); otherwise as in selection.py. The variance is that of the gradient of
the selector's parameters, summed over them, in nats² a row, over repeated draws on one batch of
1,000 rows.
"""

import argparse
import copy
import time

import torch
from record import add
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
    TunedControl,
    annealed,
    fit,
)
from lexppl.inference.contexts import program_settings, seeded
from lexppl.systems import lex

MASKS, REPEATS, BATCH = 4, 20, 200
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", default=["S1", "S2", "S3"])
    parser.add_argument("--estimators", nargs="+", default=list(ESTIMATORS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=60)
    options = parser.parse_args()
    for seed in range(1, 1 + options.seeds):
        for name in options.sets:
            train = synthetic(name, rows=10_000, seed=seed)
            test = synthetic(name, rows=10_000, seed=1000 + seed)
            best = Oracle(name).full(test.x, test.y)
            for label in options.estimators:
                estimator, samples = ESTIMATORS[label]
                # Tuned controls are the fit's own: what is watched is the objective that it has.
                objective = annealed(
                    masks=MASKS, samples=samples, estimator=copy.deepcopy(estimator)
                )
                models: list[torch.nn.Module] = []
                variances: list[float] = []
                watched = (0, options.epochs // 2, options.epochs - 1)

                def build(models=models, objective=objective):
                    models.append(lex(11, classes=2, penalty=PENALTY).program())
                    return [Stage([LossTerm(models[-1], objective)])]

                def watch(epoch, models=models, variances=variances, objective=objective):
                    if epoch.number in watched:  # noqa: B023
                        at = objective.at(epoch.progress)
                        variances.append(variance(models[-1], at, train, epoch.number))  # noqa: B023

                start = time.perf_counter()
                result = fit(
                    None,
                    train,
                    stages=build,
                    valid=0.1,
                    epochs=options.epochs,
                    batch_size=BATCH,
                    seed=seed,
                    callbacks=[watch],
                    progress=False,
                )
                record = {
                    "estimator": label,
                    "unbiased": estimator.unbiased,
                    "set": name,
                    "seed": seed,
                    "epochs": options.epochs,
                    "masks": MASKS,
                    "evaluations": MASKS * samples * (3 if label.startswith("REBAR") else 1),
                    "variance": variances,
                    **judged(result.model, test, seed),
                    "seconds": time.perf_counter() - start,
                    "collapse": result.collapse[0],
                    "control": [
                        {
                            "temperature": float(m.temperature.detach()),
                            "scale": float(m.scale.detach()),
                        }
                        for m in objective.control_parameters
                    ],
                }
                record["gap"] = best.log_likelihood - record["log_likelihood"]
                add("estimators", record, ("estimator", "set", "seed", "epochs"))
                print(
                    "{set} {seed} {estimator:30s} variance {0:.1e} {1:.1e} {2:.1e} TPR {tpr:.3f} "
                    "FDR {fdr:.3f} control {control_flow:.3f} gap {gap:.4f} {seconds:.0f} s".format(
                        *variances, **record
                    ),
                    flush=True,
                )


if __name__ == "__main__":
    main()
