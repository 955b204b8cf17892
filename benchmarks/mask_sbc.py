"""Simulation-based calibration of MaskGibbs' flips and swaps: a mask within a neural predictor.

    python benchmarks/mask_sbc.py
    python benchmarks/mask_sbc.py --samplers "no correction" --sets 60
    python benchmarks/mask_sbc.py --small            # to see that it runs

30 rows of 20 normal columns. Log-odds of an entry N(−1.5, 1), the mask of all rows by them, two
tanh units with weights N(0, 1) of each column that is in, N(0, 1.5²) to the response, noise of sd
½. All sets are chains of one `MaskMoves` at once, each with its own y, and share its warm-up; what
is continuous is moved by Hamiltonian steps between the sweeps. Chains start at the truth, and are
exact from there on; ranked are 19 draws, `--apart` sweeps from each other (the first records have
6, by which draws are more like each other than like the truth, and ranks of 400 sets are at both
ends), of the mask's size, the log-odds,
log p(y | x, z, θ), which finds draws that have not looked at y, and the sum of squared weights: p
by the distribution function of the ranks (Säilynoja et al. 2022), and by χ² of ten bins. Controls:
*slab from its prior*, whose ratio leaves out the density of what it draws; *no correction*, which
takes every flip and swap.
"""

import argparse
import math

import numpy as np
import torch
from record import Records, options_of
from scipy.stats import chisquare
from torch.distributions import Bernoulli, Normal

from lexppl.evaluation.bayes.calibration import ranked
from lexppl.inference.contexts import seeded
from lexppl.inference.posterior.mask_moves import MaskMoves, Peaks, State

ROWS, COLUMNS, UNITS, NOISE = 30, 20, 2, 0.5
DRAWS, BINS, STEPS = 19, 10, 8
SIZES = (COLUMNS,) * UNITS + (UNITS, 1, 1)  # Of inner weights, outer ones, log-odds, and a spare
SDS = torch.tensor([1.0] * COLUMNS * UNITS + [1.5] * UNITS + [1.0, 1.0], dtype=torch.float64)
MEANS = torch.tensor([0.0] * (COLUMNS + 1) * UNITS + [-1.5, 0.0], dtype=torch.float64)
PAIRS = torch.arange(COLUMNS)[:, None] + COLUMNS * torch.arange(UNITS)


def line(**record):
    numbers = {n: v for n, v in record.items() if n.startswith("p of") or "taken" in n}
    return f"{record['sampler']}, {record['sets']} sets: {numbers}"


def answers(x, place, mask):
    """The predictor's means `(…, N)`."""
    *inner, outer, _, _ = place.split(SIZES, -1)
    hidden = torch.stack([torch.tanh((mask * weight) @ x.mT) for weight in inner], -1)
    return (hidden @ outer.unsqueeze(-1)).squeeze(-1)


class Sets:
    """The posteriors of N data sets `(N, R)`, of states in the order of their sets."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def likelihood(self, place, masks, y):
        return Normal(answers(self.x, place, masks), NOISE).log_prob(y).sum(-1)

    def density(self, place, masks, y):
        odds = place[..., -2:-1]
        prior = -0.5 * ((place - MEANS) / SDS).square().sum(-1)
        prior = prior + (masks * odds - torch.nn.functional.softplus(odds)).sum(-1)
        return prior + self.likelihood(place, masks, y)

    def __call__(self, numbers):
        """Of states as MaskMoves asks for them: many of each set, then one of each set."""
        own = torch.arange(len(self.y))
        each = len(numbers["place"]) // len(own) - 1
        own = torch.cat([own.repeat_interleave(each), own])
        parts = zip(
            *(n.split(20_000) for n in (numbers["place"], numbers["masks"], self.y[own])),
            strict=True,
        )
        with torch.no_grad():
            return torch.cat([self.density(*part) for part in parts])


class Uncorrected(MaskMoves):
    """Flips and swaps that are always taken."""

    def taken(self, log_ratio):
        return torch.ones_like(log_ratio, dtype=torch.bool)


class WithoutDensity(Peaks):
    def normal(self, chosen, side):
        law = super().normal(chosen, side)
        law.log_prob = lambda numbers: numbers.new_zeros(len(numbers))
        return law


class PriorSlab(MaskMoves):
    """Slabs that are draws of their prior, with a ratio that does not have their density."""

    def peaks(self, *states):
        found = super().peaks(*states)
        return WithoutDensity(found.mean * 0.0, found.scale * 0.0 + 1.0, *found[2:])


SAMPLERS = {"MaskGibbs": MaskMoves, "slab from its prior": PriorSlab, "no correction": Uncorrected}


def hamiltonian(sets, state, step):
    """A Hamiltonian step of each set given its mask, and which were taken."""

    def slope(place):
        place = place.detach().requires_grad_()
        value = sets.density(place, state.masks, sets.y)
        return value.detach(), torch.autograd.grad(value.sum(), place)[0]

    size = step * torch.empty(len(state.place), 1).uniform_(0.6, 1.2)
    place, speed = state.place, torch.randn_like(state.place)
    (before, force), energy = slope(place), 0.5 * speed.square().sum(-1)
    for _ in range(STEPS):
        speed = speed + 0.5 * size * force
        place = place + size * speed
        after, force = slope(place)
        speed = speed + 0.5 * size * force
    ratio = after - before + energy - 0.5 * speed.square().sum(-1)
    taken = torch.rand_like(ratio).log() < ratio
    return State(torch.where(taken[:, None], place, state.place), state.masks), taken


def quantities(sets, state):
    size, odds = state.masks.sum(-1), state.place[:, -2]
    slabs = state.place[:, : COLUMNS * UNITS].square().sum(-1)
    return torch.stack([size, odds, sets.likelihood(*state, sets.y), slabs], -1).numpy()


def calibrated(kind, count, warmup, apart, seed=0):
    """Ranks of the truths of simulated sets among draws of a kind of moves."""
    x = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed)).double()
    with seeded(seed):
        place = MEANS + SDS * torch.randn(count, len(MEANS)).double()
        masks = Bernoulli(logits=place[:, -2:-1].expand(-1, COLUMNS)).sample()
        mean = answers(x, place, masks)
        sets = Sets(x, mean + NOISE * torch.randn_like(mean))
        truth, values, shares, step = State(place, masks), [], [], 0.05
        moves = kind(sets, PAIRS, truth, warmup)
        for sweep in range(warmup + DRAWS * apart):
            flips, swaps = moves.sweep()
            moves.state, taken = hamiltonian(sets, moves.state, step)
            if sweep < warmup:
                step *= math.exp(0.1 * (float(taken.double().mean()) - 0.8))
            elif (sweep - warmup) % apart == apart - 1:
                values.append(quantities(sets, moves.state))
            shares.append([float(v.double().mean()) for v in (flips, swaps, taken)])
        names = ("size", "log-odds", "log p(y)", "slabs")
        found = ranked(names, np.stack(values, 1), quantities(sets, truth), None, "", seed)
    return found, np.mean(shares[warmup:], 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--warmup", type=int, default=40, help="sweeps")
    parser.add_argument("--apart", type=int, default=24, help="sweeps between draws")
    options = options_of(parser, {"sets": 10, "warmup": 10, "apart": 2})
    same = ("sets", "warmup", "apart")
    records = Records("mask_sbc", ("sampler", *same), line, options)
    common = {name: getattr(options, name) for name in same}
    for run in records.due({"sampler": name, **common} for name in options.samplers):
        with records.run(run) as record:
            found, shares = calibrated(SAMPLERS[run["sampler"]], *(run[n] for n in same))
            names = ("flips taken", "swaps taken", "Hamiltonian steps taken")
            record |= dict(zip(names, map(float, shares), strict=True))
            for place, name in enumerate(found.names):
                bins = np.bincount(found.ranks[:, place] * BINS // (DRAWS + 1), minlength=BINS)
                record[f"p of {name}"] = float(found.p_values[name])
                record[f"p of {name}, bins"] = float(chisquare(bins).pvalue)
                record[f"bins of {name}"] = bins.tolist()
            record["alarms"] = found.alarms()


if __name__ == "__main__":
    main()
