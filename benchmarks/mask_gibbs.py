"""Spike and slab by MaskGibbs: inclusion against closed forms, long chains and other samplers.

    python benchmarks/mask_gibbs.py
    python benchmarks/mask_gibbs.py --figures "logistic 7" --samplers MaskGibbs Polya-Gamma NumPyro
    python benchmarks/mask_gibbs.py --small            # to see that it runs

*integrated*, *sampled*: a normal regression of 12 columns and 25 rows, slopes integrated out by the
program or sampled, against the sum over 4,096 masks. *copies*: the same with 10 columns and 80
rows, two of them the same column. *logistic*: 300 rows of 30 columns, two of which correlate at
.95, slab sd 1 or 7; *wide*: 40 rows of 200 columns, slopes integrated out: against the mean of
exact conditionals over a long Gibbs chain (`mask_references.py`). *wide* also has the exact
conditionals of MaskGibbs' own masks. NumPyro's `DiscreteHMCGibbs` (`pip install numpyro`) and a
Gibbs sampler by Pólya-Gamma variables take the program of *logistic*. Errors are of the draws and
of the reference; effective draws are the fewest of any entry of probability .05 to .95, and a
second is one of the processor.
"""

import argparse
import math
import time
import warnings
from functools import cache, partial

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from mask_references import (
    by_enumeration,
    linear_chain,
    linear_conditionals,
    logistic_chain,
    numpyro_chain,
)
from pyro.infer import NUTS
from record import Records, options_of, timed
from scipy.special import expit

from lexppl.effects import mask_particles
from lexppl.inference import MaskGibbs, SamplerWarning, fit

FIGURES = ("integrated", "sampled", "copies", "logistic 1", "logistic 7", "wide")
SAMPLERS = ("MaskGibbs", "Polya-Gamma", "NumPyro")
KEPT, SLAB, NOISE = 0.3, 1.0, 0.8


def line(**record):
    numbers = {n: v for n, v in record.items() if isinstance(v, float)}
    return f"{record['figure']} {record['sampler']}: " + " ".join(
        f"{n} {v:.3f}" for n, v in numbers.items()
    )


def coins(x, kept):
    return dist.Bernoulli(x.new_full((x.shape[-1],), kept)).to_event(1)


def integrated(x, y=None, kept=KEPT):
    with mask_particles():
        z = pyro.sample("mask", coins(x, kept))
        products = (x.mT.unsqueeze(-1) * x.mT.unsqueeze(-2)).flatten(1)
        signal = (z @ products).unflatten(-1, (len(x), len(x)))
        covariance = NOISE**2 * torch.eye(len(x), dtype=x.dtype) + SLAB**2 * signal
        pyro.sample("y", dist.MultivariateNormal(x.new_zeros(len(x)), covariance), obs=y)


def sampled(x, y=None):
    slope = pyro.sample("slope", dist.Normal(x.new_zeros(x.shape[-1]), SLAB).to_event(1))
    with mask_particles():
        z = pyro.sample("mask", coins(x, KEPT))
        with pyro.plate("data", len(x), dim=-1):
            mean = ((z * slope) @ x.mT).squeeze(-2)
            pyro.sample("y", dist.Normal(mean, NOISE), obs=y)


def logistic(slab):
    def program(x, y=None):
        level = pyro.sample("level", dist.Normal(x.new_zeros(()), 3.0))
        slope = pyro.sample("slope", dist.Normal(x.new_zeros(x.shape[-1]), slab).to_event(1))
        with mask_particles():
            z = pyro.sample("mask", coins(x, 5 / x.shape[-1]))
            with pyro.plate("data", len(x), dim=-1):
                logits = level + ((z * slope) @ x.mT).squeeze(-2)
                pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    return program


def regression(rows, columns, seed, few=None):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    slopes = np.where(np.arange(columns) % 3 == 0, 0.6, 0.0)
    if few is not None:
        slopes[3 * few :] = 0.0
    return x, x @ slopes + NOISE * draw.normal(size=rows)


def labels(rows, columns, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    x[:, 1] = 0.95 * x[:, 0] + math.sqrt(1 - 0.95**2) * x[:, 1]
    slopes = np.zeros(columns)
    slopes[[0, 2, 3, 4]] = [1.0, 0.8, -0.6, 0.4]
    return x, (draw.random(rows) < expit(x @ slopes + 0.3)).astype(float)


def problem(figure):
    """Columns, responses, the program, and its prior probability, slab and noise."""
    if figure.startswith("logistic"):
        x, y = labels(300, 30, 0)
        slab = float(figure.split()[1])
        return x, y, logistic(slab), (5 / 30, slab)
    if figure == "wide":
        x, y = regression(40, 200, 0, few=4)
        return x, y, partial(integrated, kept=5 / 200), (5 / 200, SLAB, NOISE)
    x, y = regression(80, 10, 0) if figure == "copies" else regression(25, 12, 0)
    if figure == "copies":
        x[:, 1] = x[:, 0]
    return x, y, sampled if figure == "sampled" else integrated, (KEPT, SLAB, NOISE)


@cache
def reference(figure, sweeps):
    """Inclusion probabilities, and the variances of their errors, by the mean of conditionals over
    a chain, or exact."""
    x, y, _, law = problem(figure)
    if figure not in ("logistic 1", "logistic 7", "wide"):
        return by_enumeration(x, y, *law), 0.0
    chain = linear_chain if figure == "wide" else logistic_chain
    given = chain(x, y, *law, sweeps=sweeps, seed=1)[1]
    return given.mean(0), given.var(0) / effective(given[None])


def drawn(run, x, y, program, law):
    """Draws of masks `(C, S, G)`, and shares of moves that were taken."""
    sweeps, chains, warmup = run["sweeps"], run["chains"], max(20, run["sweeps"] // 6)
    if run["sampler"] == "NumPyro":
        return numpyro_chain(x, y, *law, sweeps, warmup, chains), {}
    if run["sampler"] == "Polya-Gamma":
        each = [logistic_chain(x, y, *law, sweeps, seed=chain)[0] for chain in range(chains)]
        return np.stack(each), {}
    kernel = partial(NUTS, max_tree_depth=5)
    sampler = MaskGibbs(kernel, samples=sweeps, warmup=warmup, chains=chains)
    rows = torch.tensor(x), torch.tensor(y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplerWarning)
        result = fit(program, rows, inference=sampler, progress=False)
    z = np.stack([guide.sites["mask"].numpy() for guide in result.guides])
    names = ("flip_acceptance", "swap_acceptance", "masks_changed")
    return z, {name: float(result.sampler.sample_stats[name].mean()) for name in names}


def effective(values):
    """Effective draws `(G,)` of chains `(C, S, G)`, none of an entry that never moves."""
    values = values.astype(float)
    ess = arviz.ess({"value": values}, method="mean")["value"].values
    return np.where(np.ptp(values, (0, 1)) > 0, ess, 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=FIGURES)
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=["MaskGibbs"])
    parser.add_argument("--sweeps", type=int, default=3000, help="of a chain")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument("--reference", type=int, default=100_000, help="sweeps of its chain")
    few = {
        "sweeps": 20,
        "reference": 200,
        "figures": ("integrated", "copies", "logistic 1", "wide"),
    }
    options = options_of(parser, few)
    records = Records("mask_gibbs", ("figure", "sampler", "sweeps", "chains"), line, options)
    common = {"sweeps": options.sweeps, "chains": options.chains}
    wanted = [(f, s) for f in options.figures for s in options.samplers]
    for run in records.due({"figure": f, "sampler": s, **common} for f, s in wanted):
        x, y, program, law = problem(run["figure"])
        with records.run(run) as record:
            begun = time.process_time()
            with timed(record):
                z, stats = drawn(run, x, y, program, law)
            record["cpu_seconds"] = time.process_time() - begun
            record |= stats
            expected, variance = reference(run["figure"], options.reference)
            record["reference"] = options.reference
            if run["figure"] == "copies":
                record["pair"] = float(z[..., :2].any(-1).mean(1).min())
                record["copy"] = float(abs(z.mean(1)[:, :2] - 0.5).max())
            if run["figure"] == "wide":
                given = linear_conditionals(x, y, *law, z.reshape(-1, z.shape[-1]))
                record["off_conditionals"] = float(abs(given.mean(0) - z.mean((0, 1))).max())
            inclusion, ess = z.mean((0, 1)), effective(z)
            with np.errstate(divide="ignore"):
                error = np.sqrt(expected * (1 - expected) / ess + variance)
            off, open_ = abs(inclusion - expected), abs(expected - 0.5) < 0.45
            least = float(ess[open_].min())
            record |= {
                "ess": least,
                "per_second": least / record["cpu_seconds"],
                "between": float(np.ptp(z.mean(1), 0).max()),
                "off": float(off.max()),
                "error": float(error[off.argmax()]),
                "largest_z": float((off / error).max()),
                "error_of_reference": float(np.sqrt(np.max(variance))),
                "inclusion": inclusion.tolist(),
                "expected": expected.tolist(),
            }


if __name__ == "__main__":
    main()
