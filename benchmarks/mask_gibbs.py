"""Spike and slab by MaskGibbs: inclusion against closed forms, copies, and a chain by hand.

    python benchmarks/mask_gibbs.py
    python benchmarks/mask_gibbs.py --figures logistic --sweeps 3000
    python benchmarks/mask_gibbs.py --small            # to see that it runs

*integrated*, *sampled*: a normal regression of 12 columns and 25 rows, slopes integrated out by the
program or sampled, against the sum over 4,096 masks. *copies*: the same with 10 columns and 80
rows, two of them the same column. *logistic*: 300 rows of 30 columns, two of which correlate at
.95, slab sd 1 or 7, two chains and beside them a chain by hand (`by_hand`), which shares no code:
flips with slopes from a Laplace approximation along one column, and swaps by correlation.
"""

import argparse
import itertools
import math
import time
import warnings
from functools import partial

import arviz
import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import NUTS
from record import Records, options_of, timed
from scipy.special import expit, softmax
from scipy.stats import norm

from lexppl.effects import mask_particles
from lexppl.inference import MaskGibbs, SamplerWarning, fit

FIGURES = ("integrated", "sampled", "copies", "logistic 1", "logistic 7")
KEPT, SLAB, NOISE = 0.3, 1.0, 0.8


def line(**record):
    numbers = {n: v for n, v in record.items() if isinstance(v, float)}
    return f"{record['figure']:12s} " + " ".join(f"{n} {v:.3f}" for n, v in numbers.items())


def coins(x, kept):
    return dist.Bernoulli(x.new_full((x.shape[-1],), kept)).to_event(1)


def integrated(x, y=None):
    with mask_particles():
        z = pyro.sample("mask", coins(x, KEPT))
        kept = x * z.unsqueeze(-2)
        covariance = NOISE**2 * torch.eye(len(x), dtype=x.dtype) + SLAB**2 * kept @ kept.mT
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


def regression(rows, columns, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    slopes = np.where(np.arange(columns) % 3 == 0, 0.6, 0.0)
    return x, x @ slopes + NOISE * draw.normal(size=rows)


def by_enumeration(x, y):
    """Inclusion probabilities by the normal equations of every mask."""
    masks = np.array(list(itertools.product((0, 1), repeat=x.shape[1])), dtype=bool)
    log_p = []
    for mask in masks:
        own, size = x[:, mask], mask.sum()
        precision = own.T @ own / NOISE**2 + np.eye(size) / SLAB**2
        mean = np.linalg.solve(precision, own.T @ y / NOISE**2)
        log_p.append(
            norm.logpdf(y, 0, NOISE).sum()
            + 0.5 * (mean @ precision @ mean - np.linalg.slogdet(precision)[1])
            + size * (math.log(KEPT) - math.log(1 - KEPT) - math.log(SLAB))
        )
    return softmax(log_p) @ masks


def labels(rows, columns, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(rows, columns))
    x[:, 1] = 0.95 * x[:, 0] + math.sqrt(1 - 0.95**2) * x[:, 1]
    slopes = np.zeros(columns)
    slopes[[0, 2, 3, 4]] = [1.0, 0.8, -0.6, 0.4]
    return x, (draw.random(rows) < expit(x @ slopes + 0.3)).astype(float)


def by_hand(x, y, slab, sweeps, seed=0):
    """Inclusion probabilities of the logistic program, one column after another."""
    rows, columns = x.shape
    draw, kept = np.random.default_rng(seed), 5 / columns
    near = abs(np.corrcoef(x.T)) ** 4 + 1e-3
    square = x**2

    def log_p(eta):
        return y @ eta - np.logaddexp(0, eta).sum()

    def laplace(rest, own, squared, sd, b=0.0):
        for _ in range(6):
            p = expit(rest + b * own)
            bend = squared @ (p * (1 - p)) + 1 / sd**2
            b = b + max(-1.0, min(1.0, (own @ (y - p) - b / sd**2) / bend))
        p = expit(rest + b * own)
        return b, 1 / math.sqrt(squared @ (p * (1 - p)) + 1 / sd**2)

    def log_normal(b, mean, sd):
        return -0.5 * ((b - mean) / sd) ** 2 - math.log(sd)

    def taken(ratio):
        return math.log(draw.random()) < ratio

    z, slope, level = np.zeros(columns, dtype=bool), np.zeros(columns), 0.0
    eta, counts, odds = np.zeros(rows), np.zeros(columns), math.log(kept) - math.log(1 - kept)
    for sweep in range(sweeps + sweeps // 5):
        mean, sd = laplace(eta - level, np.ones(rows), np.ones(rows), 3.0)
        new = mean + sd * draw.normal()
        ratio = (
            log_p(eta - level + new) - log_p(eta) + log_normal(new, 0, 3) - log_normal(level, 0, 3)
        )
        if taken(ratio + log_normal(level, mean, sd) - log_normal(new, mean, sd)):
            level, eta = new, eta - level + new
        for j in draw.permutation(columns):
            own, rest = x[:, j], eta - z[j] * slope[j] * x[:, j]
            mean, sd = laplace(rest, own, square[:, j], slab)
            out, b = log_p(rest), mean + sd * draw.normal()

            def inside(b, rest=rest, own=own, mean=mean, sd=sd):
                weight = log_normal(b, 0, slab) - log_normal(b, mean, sd)
                return log_p(rest + b * own) + odds + weight

            if z[j]:
                if taken(out - inside(slope[j])):
                    z[j], eta = False, rest
                elif taken(inside(b) - inside(slope[j])):
                    slope[j], eta = b, rest + b * own
            elif taken(inside(b) - out):
                z[j], slope[j], eta = True, b, rest + b * own
        if z.any() and not z.all():
            i = draw.choice(np.flatnonzero(z))
            off = np.flatnonzero(~z)
            j = draw.choice(off, p=near[i, off] / near[i, off].sum())
            back = near[j, off].sum() - near[j, j] + near[j, i]
            ratio = math.log(near[j, i] / back) - math.log(near[i, j] / near[i, off].sum())
            rest = eta - slope[i] * x[:, i]
            here, there = (laplace(rest, x[:, k], square[:, k], slab) for k in (i, j))
            b = there[0] + there[1] * draw.normal()
            ratio += log_p(rest + b * x[:, j]) + log_normal(b, 0, slab) - log_normal(b, *there)
            ratio += log_normal(slope[i], *here) - log_normal(slope[i], 0, slab) - log_p(eta)
            if taken(ratio):
                z[i], z[j], slope[j], eta = False, True, b, rest + b * x[:, j]
        if sweep >= sweeps // 5:
            counts += z
    return counts / sweeps


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--figures", nargs="+", choices=FIGURES, default=FIGURES)
    parser.add_argument("--sweeps", type=int, default=3000, help="of a chain")
    parser.add_argument("--chains", type=int, default=2)
    parser.add_argument(
        "--reference", type=int, default=100_000, help="sweeps of the chain by hand"
    )
    few = {"sweeps": 20, "reference": 20, "figures": ("integrated", "copies", "logistic 1")}
    options = options_of(parser, few)
    records = Records("mask_gibbs", ("figure", "sweeps", "chains"), line, options)
    common = {"sweeps": options.sweeps, "chains": options.chains}
    for run in records.due({"figure": f, **common} for f in options.figures):
        figure = run["figure"]
        slab = float(figure.split()[1]) if figure.startswith("logistic") else SLAB
        if figure.startswith("logistic"):
            x, y = labels(300, 30, 0)
            program = logistic(slab)
        else:
            x, y = regression(80, 10, 0) if figure == "copies" else regression(25, 12, 0)
            if figure == "copies":
                x[:, 1] = x[:, 0]
            program = integrated if figure == "integrated" else sampled
        sampler = MaskGibbs(
            partial(NUTS, max_tree_depth=5),
            samples=options.sweeps,
            warmup=max(20, options.sweeps // 6),
            chains=options.chains,
        )
        with records.run(run) as record, warnings.catch_warnings():
            warnings.simplefilter("ignore", SamplerWarning)
            rows, begun = (torch.tensor(x), torch.tensor(y)), time.process_time()
            with timed(record):
                result = fit(program, rows, inference=sampler, progress=False)
            record["cpu_seconds"] = time.process_time() - begun
            z = np.stack([guide.sites["mask"].numpy() for guide in result.guides])
            stats, inclusion = result.sampler.sample_stats, z.mean(1)
            ess = arviz.ess({"z": z}, method="mean")["z"].values
            for name in ("flip_acceptance", "swap_acceptance", "masks_changed"):
                record[name] = float(stats[name].mean())
            if figure == "copies":
                record["pair"] = float(z[..., :2].any(-1).mean(1).min())
                record["copy"] = float(abs(inclusion[:, :2] - 0.5).max())
            if figure.startswith("logistic"):
                expected = by_hand(x, y, slab, options.reference)
                record["reference"] = options.reference
            else:
                expected = by_enumeration(x, y)
            off = abs(inclusion.mean(0) - expected)
            error = np.sqrt(expected * (1 - expected) / ess)
            record |= {
                "ess": float(np.nanmin(ess)),
                "between": float(np.ptp(inclusion, 0).max()),
                "off": float(off.max()),
                "largest_z": float(np.nanmax(off / error)),
                "inclusion": inclusion.mean(0).tolist(),
                "expected": expected.tolist(),
            }


if __name__ == "__main__":
    main()
