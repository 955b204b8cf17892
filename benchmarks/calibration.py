"""Is a posterior calibrated? Ranks of simulated truths, by program and method.

    python benchmarks/calibration.py               # 500 simulated data sets a method
    python benchmarks/calibration.py --methods NUTS SGHMC
    python benchmarks/calibration.py --small       # to see that it runs

Three programs. *line*: y ~ N((z ⊙ x)·slope, ½²) of two features, z ~ Bernoulli(.7) of each row,
slope ~ N(0, 1), 40 rows: a small LEX whose posterior has a grid. *Q-FIT*: the global Dirichlet(.1)
over three features of a given logistic regression, 200 rows. *masks*: p(z | x, y) of a LEX of four
features with fixed networks, a row a data set.

Data sets are inferred together: guides as replicates of one fit; samplers on one program that has
all the data sets side by side, their slopes independent of one another, and rows that know theirs.
A method that is not installed is left out, with a line that says so.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer.autoguide import AutoDelta, AutoMultivariateNormal, AutoNormal
from pyro.nn import PyroModule, PyroSample
from record import Records, options_of
from resampled_masks import ResampledMasks
from torch import Tensor, nn

from lexppl.distributions import MaskDirichlet
from lexppl.effects import mask_particles
from lexppl.evaluation import GuideFits, calibration, mask_calibration
from lexppl.evaluation.bayes.calibration import Calibration
from lexppl.inference import Enumerate, Linear, NestedIWAE, ReplicateData, System, fit
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.models import (
    LEX,
    MLP,
    BernoulliSelector,
    CategoricalLikelihood,
    ConstantImputer,
    Predictor,
)
from lexppl.systems import q_fit

NOISE, KEEP = 0.5, 0.7
ROWS, Q_FIT_ROWS = 40, 200
CELLS = 121
"""Of the line's grid, a dimension, from −4 to 4."""
SAME = ("program", "method")
LINE = "{program}, {method}: {summary}, {seconds:.0f} s".format


def rows_of(count: int, features: int, seed: int = 0) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed))


class Line(PyroModule):
    """The line's program for P data sets side by side; the last column of x says which.

    Args:
        sets: P.
    """

    def __init__(self, sets: int = 1) -> None:
        super().__init__()
        shape = (2,) if sets == 1 else (sets, 2)
        self.sets = sets
        self.slope = PyroSample(dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        slope = self.slope
        own = slope if self.sets == 1 else slope[x[:, 2].long()]
        with pyro.plate("data", len(x), dim=-1), mask_particles():
            keep = torch.full((len(x), 2), KEEP, dtype=x.dtype)
            mask = pyro.sample("mask", dist.Bernoulli(keep).to_event(1))
            mean = (mask * x[:, :2] * own).sum(-1)
            return pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def on_grid(x: Tensor, y: Tensor, seed: int, draws: int = 99, width: float = 1.0) -> Any:
    """The line's posterior on a grid, exact to a cell, at `width` times its spread."""
    side = torch.linspace(-4.0, 4.0, CELLS)
    slope = torch.cartesian_prod(side, side)
    total = -0.5 * (slope**2).sum(-1)
    masks = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 2)
    prior = dist.Bernoulli(KEEP).log_prob(masks).sum(-1)
    for row, response in zip(x, y, strict=True):
        mean = slope @ (masks * row).T
        total = total + torch.logsumexp(prior + dist.Normal(mean, NOISE).log_prob(response), -1)
    with seeded(seed):
        found = slope[torch.multinomial(total.softmax(0), draws, replacement=True)]
        found = found + (torch.rand_like(found) - 0.5) * (side[1] - side[0])
    return {"slope": found.mean(0) + width * (found - found.mean(0))}


class SideBySide:
    """A posterior inference of many data sets of the line in one run.

    Args:
        inference: of the joint program.
        at_once: P.
    """

    def __init__(self, inference: Any, at_once: int) -> None:
        self.inference, self.at_once = inference, at_once

    def posteriors(
        self, parts: Any, x: Tensor, ys: Sequence[Tensor], seeds: Sequence[int], draws: int
    ) -> Iterator[dict[str, Tensor]]:
        for start in range(0, len(ys), self.at_once):
            some = ys[start : start + self.at_once]
            which = torch.arange(len(some)).repeat_interleave(len(x)).to(x.dtype)
            joint = torch.cat([x.repeat(len(some), 1), which[:, None]], 1)
            program = Line(max(2, len(some)))
            keep_parameters_local(program)
            found = self.inference.run(
                program, (joint, torch.cat(list(some))), seed=seeds[start] % 2**31, progress=False
            )
            slopes = found.samples["slope"].flatten(0, 1)
            yield from ({"slope": slopes[:, place]} for place in range(len(some)))


class Bootstrap:
    """The weighted-likelihood bootstrap: modes under Dirichlet weights of the rows.

    Args:
        at_once: data sets of a fit, each with as many replicates as draws.
    """

    def __init__(self, at_once: int, epochs: int) -> None:
        self.at_once, self.epochs = at_once, epochs

    def posteriors(
        self, parts: Any, x: Tensor, ys: Sequence[Tensor], seeds: Sequence[int], draws: int
    ) -> Iterator[dict[str, Tensor]]:
        for start in range(0, len(ys), self.at_once):
            some = ys[start : start + self.at_once]
            result = fit(
                Line(),
                ReplicateData([(x, y) for y in some for _ in range(draws)]),
                guide=AutoDelta,
                valid=None,
                row_weights="dirichlet",
                epochs=self.epochs,
                learning_rate=Linear(0.1, 0.0, begin=0.5),
                objective=exact_bound(),
                seed=seeds[start] % 2**31,
                progress=False,
            )
            points = torch.stack([guide.median()["slope"].detach() for guide in result.guides])
            yield from ({"slope": own} for own in points.split(draws))


def exact_bound() -> NestedIWAE:
    """The log-likelihood of the masks' marginal, or near it."""
    return NestedIWAE(float("inf"), estimator=Enumerate())


def line_methods(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """By name, what `calibration` is given."""
    at_once, short = options.at_once, options.small
    epochs = 20 if short else 200
    rate = Linear(0.1, 0.002, begin=0.3)
    training = {"epochs": epochs, "learning_rate": rate, "objective": exact_bound()}

    def guide(kind: Any) -> dict[str, Any]:
        return {"infer": GuideFits(kind, at_once, training)}

    def nuts() -> dict[str, Any]:
        from lexppl.inference import MCMC

        size = (10, 10) if short else (200, 200)
        return {"infer": SideBySide(MCMC(samples=size[0], warmup=size[1], chains=1), at_once)}

    def sghmc(name: str = "SGHMC") -> dict[str, Any]:
        from lexppl import inference

        size = {"warmup": 10, "thin": 2, "climb": 10} if short else {}
        method = getattr(inference, name)(samples=options.draws, chains=1, **size)
        return {"infer": SideBySide(method, at_once)}

    def bootstrap() -> dict[str, Any]:
        return {"infer": Bootstrap(max(1, at_once // 2), epochs // 2), "draws": 19}

    return {
        "grid (exact)": lambda: {"infer": partial(on_grid, draws=options.draws)},
        "NUTS": nuts,
        "SGHMC": sghmc,
        "SGLD": partial(sghmc, "SGLD"),
        "bootstrap": bootstrap,
        "AutoMultivariateNormal": partial(guide, AutoMultivariateNormal),
        "AutoNormal": partial(guide, AutoNormal),
        "half as wide (control)": lambda: {
            "infer": partial(on_grid, draws=options.draws, width=0.5)
        },
    }


class Logistic(nn.Module):
    """A given logistic regression of three features."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([6.0, -6.0, 6.0]))

    def forward(self, x: Tensor) -> Any:
        half = 0.5 * (x * self.weight).sum(-1, keepdim=True)
        return dist.Categorical(logits=torch.cat([-half, half], -1))


def q_fit_exact(x: Tensor, y: Tensor, seed: int, draws: int = 99) -> Any:
    """Q-FIT's posterior, by 40,000 draws of the prior, weighed by the likelihood."""
    with seeded(seed), torch.no_grad():
        f = MaskDirichlet(torch.full((3,), 0.1)).sample((40_000,))
        logits = f @ (x * Logistic().weight).T
        total = dist.Bernoulli(logits=logits).log_prob(y.to(x.dtype)).sum(-1)
        chosen = torch.multinomial(total.softmax(0), draws, replacement=True)
    return {"importance": f[chosen]}


def remembered(exact: Callable[..., Any]) -> Callable[..., Any]:
    """The same draws for the same seed, which stands for the data set: each method has them all."""
    known: dict[int, Any] = {}

    def draw(x: Tensor, y: Tensor, seed: int) -> Any:
        if seed not in known:
            known[seed] = exact(x, y, seed)
        return known[seed]

    return draw


def q_fit_methods(options: argparse.Namespace) -> dict[str, Callable[[], dict[str, Any]]]:
    """Q-FIT's guide under several trainings."""

    def trained(**training: Any) -> dict[str, Any]:
        if options.small:
            training["epochs"] = 3
        return {"infer": GuideFits(None, options.at_once, training)}

    exact = partial(q_fit_exact, draws=options.draws)
    return {
        "prior, weighed (exact)": lambda: {"infer": exact},
        "guide, fit's defaults": trained,
        "guide, rate 1 to .02": partial(trained, learning_rate=Linear(1.0, 0.02)),
    }


def q_fit_system() -> System:
    return q_fit(3, Logistic(), scope="global")


def mask_program() -> LEX:
    """A LEX of four features whose masks depend on x, and whose labels depend on the masks."""
    program = LEX(
        BernoulliSelector(MLP(4, 4, (8,), seed=0)),
        ConstantImputer(0.0),
        Predictor(MLP(4, 2, (8,), seed=1), CategoricalLikelihood()),
    )
    with torch.no_grad():
        for parameter in program.parameters():
            parameter.mul_(4.0)
    return program


def mask_methods() -> dict[str, Any]:
    program = mask_program()
    return {
        "enumeration": None,
        "resampling, 4 proposals a draw": ResampledMasks(program),
        "resampling, 1 proposal a draw": ResampledMasks(program, proposals=1),
        "p(z | x), y unseen (control)": prior_masks,
    }


def prior_masks(x: Tensor, y: Tensor, seed: int) -> Tensor:
    with seeded(seed), torch.no_grad():
        return mask_program().selector(x).sample((99,))


def filled(record: dict[str, Any], found: Calibration, start: float) -> None:
    """Put what was found into a record."""
    table = found.table
    worst = table["p_value"].idxmin()
    alarms = found.alarms()
    record |= {
        "simulations": found.simulations,
        "draws": found.draws,
        "quantities": {
            str(name): {k: v if isinstance(v, str) else float(v) for k, v in row.items()}
            for name, row in table.to_dict("index").items()
        },
        "histograms": {name: h.tolist() for name, h in found.histograms().items()},
        "p_value": float(table["p_value"].min()),
        "distance": float(table["distance"].max()),
        "usual_distance": float(table["usual_distance"].iloc[0]),
        "coverage_90": float(table["coverage_90"].mean()),
        "sd_ratio": float(np.exp(np.log(table["sd_ratio"]).mean()))
        if "sd_ratio" in table
        else None,
        "verdict": alarms.get(str(worst), "consistent"),
        "alarms": alarms,
        "seconds": time.process_time() - start,
    }
    record["summary"] = (
        f"{record['verdict']}, p {record['p_value']:.4f}, distance {record['distance']:.3f} "
        f"(usual {record['usual_distance']:.3f}), 90 % hold {100 * record['coverage_90']:.0f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--simulations", type=int, default=500)
    parser.add_argument("--draws", type=int, default=99)
    parser.add_argument("--at-once", type=int, default=100, help="data sets that share a run")
    parser.add_argument("--programs", nargs="+", default=["line", "Q-FIT", "masks"])
    parser.add_argument("--methods", nargs="+", help="all by default")
    options = options_of(parser, small={"simulations": 20, "draws": 9, "at_once": 10})
    line_exact, importance_exact = remembered(on_grid), remembered(q_fit_exact)
    records = Records("calibration", SAME, LINE, options)
    size = {"simulations": options.simulations, "progress": False}
    methods = {
        "line": line_methods(options),
        "Q-FIT": q_fit_methods(options),
        "masks": mask_methods(),
    }
    runs = [
        {"program": program, "method": method}
        for program in options.programs
        for method in methods[program]
        if options.methods is None or method in options.methods
    ]
    for run in records.due(runs):
        chosen = methods[run["program"]][run["method"]]
        start, record = time.process_time(), dict(run)
        try:
            if run["program"] == "masks":
                count = 20 if options.small else 4 * options.simulations
                x = rows_of(500, 4)
                found = mask_calibration(mask_program(), x, chosen, simulations=count)
            elif run["program"] == "line":
                given = {"draws": options.draws, **chosen()}
                x = rows_of(ROWS, 2)
                found = calibration(Line(), x, exact=line_exact, **given, **size)
            else:
                given = {"draws": options.draws, **chosen()}
                x = rows_of(Q_FIT_ROWS, 3)
                found = calibration(q_fit_system(), x, exact=importance_exact, **given, **size)
        except ImportError as error:
            print(f"{run['program']}, {run['method']}: left out, {error}", flush=True)
            continue
        filled(record, found, start)
        records.add(record)


if __name__ == "__main__":
    main()
