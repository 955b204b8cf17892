"""References of sampled masks: closed forms, and Gibbs chains that share no code with the library.

Given all else the slopes of a normal model are normal, and are integrated out: with precision
matrix P and b of K slopes, those of a mask S have `log p(S) = ½ b_S' P_S⁻¹ b_S − ½ log |P_S| +
prior`. Labels become such a model by Pólya and Gamma's variables (Polson, Scott, Windle 2013).
"""

import itertools
import math

import numpy as np
from scipy.special import expit, log_ndtr, logit, softmax
from scipy.stats import norm


def by_enumeration(x, y, kept, slab, noise):
    """Inclusion probabilities by the normal equations of every mask."""
    masks = np.array(list(itertools.product((0, 1), repeat=x.shape[1])), dtype=bool)
    log_p = []
    for mask in masks:
        own, size = x[:, mask], mask.sum()
        precision = own.T @ own / noise**2 + np.eye(size) / slab**2
        mean = np.linalg.solve(precision, own.T @ y / noise**2)
        log_p.append(
            norm.logpdf(y, 0, noise).sum()
            + 0.5 * (mean @ precision @ mean - np.linalg.slogdet(precision)[1])
            + size * (logit(kept) - math.log(slab))
        )
    return softmax(log_p) @ masks


def conditionals(precision, b, inside, prior):
    """Log-odds `(K,)` that each entry is in, given the others, with the mean and the covariance of
    the slopes that are in."""
    own = np.flatnonzero(inside)
    covariance = np.linalg.inv(precision[np.ix_(own, own)])
    mean, cross = covariance @ b[own], precision[own]
    rest = b - mean @ cross
    bend = precision.diagonal() - (cross * (covariance @ cross)).sum(0)
    bend[own] = 1.0 / covariance.diagonal()
    rest[own] = mean * bend[own]
    return prior + 0.5 * (rest**2 / bend - np.log(bend)), mean, covariance


def log_mass(precision, b, inside, prior):
    own = np.flatnonzero(inside)
    root = np.linalg.cholesky(precision[np.ix_(own, own)])
    return (
        0.5 * (np.linalg.solve(root, b[own]) ** 2).sum()
        - np.log(root.diagonal()).sum()
        + (prior[own].sum())
    )


def sweep(precision, b, inside, prior, near, draw):
    """Every entry from its conditional in random order, then a swap by dependence; the last slopes
    and conditionals. `near` is zero of entries that are always in."""
    order, place = draw.permutation(np.flatnonzero(near.any(1))), 0
    numbers = logit(draw.random(len(order)))
    while place < len(order):
        odds, _, _ = conditionals(precision, b, inside, prior)
        rest = order[place:]
        differs = np.flatnonzero((numbers[place:] < odds[rest]) != inside[rest])
        if not len(differs):
            break
        inside[rest[differs[0]]] ^= True
        place += differs[0] + 1
    chosen = order[inside[order]]
    if 0 < len(chosen) < len(order):
        i, off = draw.choice(chosen), order[~inside[order]]
        j = draw.choice(off, p=near[i, off] / near[i, off].sum())
        other = inside.copy()
        other[[i, j]] = False, True
        back = near[j, off].sum() - near[j, j] + near[j, i]
        ratio = math.log(near[j, i] / back) - math.log(near[i, j] / near[i, off].sum())
        ratio += log_mass(precision, b, other, prior) - log_mass(precision, b, inside, prior)
        if math.log(draw.random()) < ratio:
            inside[:] = other
    return conditionals(precision, b, inside, prior)


def linear_chain(x, y, kept, slab, noise, sweeps, seed=0):
    """Draws of masks of a normal regression and their conditional probabilities, `(S, G)`."""
    draw = np.random.default_rng(seed)
    precision, b = x.T @ x / noise**2 + np.eye(x.shape[1]) / slab**2, x.T @ y / noise**2
    prior = np.full(x.shape[1], logit(kept) - math.log(slab))
    near, inside = abs(np.corrcoef(x.T)) ** 4 + 1e-3, draw.random(x.shape[1]) < kept
    masks, odds = [], []
    for _ in range(sweeps + sweeps // 10):
        odds.append(sweep(precision, b, inside, prior, near, draw)[0])
        masks.append(inside.copy())
    return np.array(masks[sweeps // 10 :]), expit(odds[sweeps // 10 :])


def linear_conditionals(x, y, kept, slab, noise, masks):
    """Conditional probabilities `(S, G)` of the entries of some masks."""
    precision, b = x.T @ x / noise**2 + np.eye(x.shape[1]) / slab**2, x.T @ y / noise**2
    prior = np.full(x.shape[1], logit(kept) - math.log(slab))
    return expit([conditionals(precision, b, mask, prior)[0] for mask in masks.astype(bool)])


def logistic_chain(x, y, kept, slab, sweeps, seed=0):
    """Draws of masks of a logistic regression with a level of sd 3, and their conditional
    probabilities given Pólya and Gamma's variables too, `(S, G)`."""
    draw = np.random.default_rng(seed)
    design = np.column_stack([x, np.ones(len(x))])
    columns = x.shape[1]
    sds = np.r_[np.full(columns, slab), 3.0]
    prior = np.r_[np.full(columns, logit(kept) - math.log(slab)), 0.0]
    near = np.zeros((columns + 1, columns + 1))
    near[:-1, :-1] = abs(np.corrcoef(x.T)) ** 4 + 1e-3
    inside = np.r_[draw.random(columns) < kept, True]
    predicted, b, masks, odds = np.zeros(len(x)), design.T @ (y - 0.5), [], []
    for _ in range(sweeps + sweeps // 10):
        weights = polya_gamma(predicted, draw)
        precision = (design.T * weights) @ design + np.diag(sds**-2)
        given, mean, covariance = sweep(precision, b, inside, prior, near, draw)
        odds.append(given[:-1])
        slopes = draw.multivariate_normal(mean, covariance, method="cholesky")
        predicted = design[:, inside] @ slopes
        masks.append(inside[:-1].copy())
    return np.array(masks[sweeps // 10 :]), expit(odds[sweeps // 10 :])


BEND = 0.64  # Where Devroye's two proposals meet


def polya_gamma(tilt, draw):
    """Draws of PG(1, c), of each c `(N,)`: Devroye's rejection by an alternating series."""
    z = abs(tilt) / 2.0
    rate = math.pi**2 / 8.0 + z**2 / 2.0
    right = np.log(math.pi / 2.0 / rate) - rate * BEND
    low, high = (BEND * z - 1.0) / math.sqrt(BEND), -(BEND * z + 1.0) / math.sqrt(BEND)
    # Twice exp(-z) times the distribution function of an inverse normal of mean 1/z at the bend.
    left = math.log(2.0) - z + np.logaddexp(log_ndtr(low), 2.0 * z + log_ndtr(high))
    share = expit(right - left)
    found, rest = np.empty(len(z)), np.arange(len(z))
    while len(rest):
        value = BEND + draw.exponential(size=len(rest)) / rate[rest]
        small = draw.random(len(rest)) >= share[rest]
        value[small] = _below_bend(z[rest[small]], draw)
        taken = _by_series(value, draw)
        found[rest[taken]] = value[taken] / 4.0
        rest = rest[~taken]
    return found


def _below_bend(z, draw):
    """Draws below the bend of inverse normals of mean 1/z."""
    found, rest = np.empty(len(z)), np.arange(len(z))
    while len(rest):
        own = z[rest]
        value = draw.wald(1.0 / np.maximum(own, 1.0 / BEND), 1.0)
        far = own < 1.0 / BEND
        normal = draw.exponential(size=(2, len(rest)))
        from_tail = BEND / (1.0 + BEND * normal[0]) ** 2
        taken = np.where(far, normal[0] ** 2 <= 2.0 * normal[1] / BEND, value < BEND)
        taken &= ~far | (draw.random(len(rest)) < np.exp(-0.5 * own**2 * from_tail))
        found[rest[taken]] = np.where(far, from_tail, value)[taken]
        rest = rest[~taken]
    return found


def _by_series(value, draw):
    """Which proposals are taken, by partial sums on either side of the density."""
    odd = np.arange(12)[:, None] + 0.5
    with np.errstate(under="ignore"):
        terms = np.where(
            value > BEND,
            np.exp(-(odd**2) * math.pi**2 * value / 2.0),
            (2.0 / (math.pi * value)) ** 1.5 * np.exp(-2.0 * odd**2 / value),
        )
    sums = (math.pi * odd * terms * np.resize([1.0, -1.0], 12)[:, None]).cumsum(0)
    height = draw.random(len(value)) * sums[0]
    decided = np.where(np.arange(12)[:, None] % 2 == 1, height <= sums, height > sums)
    first = decided[1:].argmax(0) + 1
    return first % 2 == 1


def numpyro_chain(x, y, kept, slab, sweeps, warmup, chains, seed=0):
    """Draws of masks `(C, S, G)` of the same program by NumPyro, compiled on the way."""
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import MCMC, NUTS, DiscreteHMCGibbs

    numpyro.enable_x64()
    columns = x.shape[1]

    def program(x, y):
        level = numpyro.sample("level", dist.Normal(0.0, 3.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, slab).expand([columns]).to_event(1))
        with numpyro.plate("columns", columns):
            z = numpyro.sample("mask", dist.Bernoulli(kept))
        with numpyro.plate("data", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=level + x @ (z * slope)), obs=y)

    kernel = DiscreteHMCGibbs(NUTS(program), modified=True)
    sampler = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=sweeps,
        num_chains=chains,
        chain_method="sequential",
        progress_bar=False,
    )
    sampler.run(jax.random.PRNGKey(seed), x, y)
    return np.asarray(sampler.get_samples(group_by_chain=True)["mask"])
