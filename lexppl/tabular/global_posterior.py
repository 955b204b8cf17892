"""The posterior of the weights of a table's explainer, by a sampler or a guide."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pyro.distributions as dist
import torch
from pyro.infer import HMC, NUTS
from pyro.infer.autoguide import AutoLowRankMultivariateNormal, AutoMultivariateNormal, AutoNormal
from torch import Tensor

from lexppl.choices.settings import HAMILTONIAN, AskedPosterior
from lexppl.inference import (
    MCMC,
    SGHMC,
    SGLD,
    DiagonalVI,
    Ensemble,
    FitResult,
    Laplace,
    System,
    fit,
    settled,
)
from lexppl.inference.posterior.global_draws import PosteriorInference
from lexppl.inference.training.settings import GUIDES_RATE

GUIDES: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "normal": AutoNormal,
        "low-rank": AutoLowRankMultivariateNormal,
        "multivariate-normal": AutoMultivariateNormal,
    }
)
CHAIN = 250  # Draws of a Hamiltonian chain, and as many before them in which its steps adapt
MOST_LISTED = 256
"""Masks that a step of a Hamiltonian chain, or a dense Hessian, sums over; more take hours."""


def refuse_unlistable(posterior: AskedPosterior, entries: int, k: int | None) -> None:
    """Refuse NUTS, HMC and Laplace, which sum over all masks of a row, above 256 masks."""
    masks = 2**entries if k is None else math.comb(entries, k)
    if posterior.inference in (*HAMILTONIAN, "laplace") and masks > MOST_LISTED:
        of_size = "" if k is None else f" that keep {k}"
        raise ValueError(
            f"{posterior.inference} sums over every mask of a row, and of {entries} features there "
            f"are {masks:,}{of_size}, of which at most {MOST_LISTED:,} can be: use sghmc, or "
            "the guide normal, which draw masks; or give fewer features, or a smaller k"
        )


def prior_of(posterior: AskedPosterior) -> Any:
    """A normal prior of all weights, or with a guide of the selector's."""
    normal = dist.Normal(0.0, posterior.prior)
    return normal if posterior.guide is None else {"selector": normal}


def fit_posterior(
    posterior: AskedPosterior,
    system: System,
    train: tuple[Tensor, Tensor],
    valid: tuple[Tensor, Tensor] | None,
    *,
    chains: int,
    training: dict[str, Any],
) -> FitResult:
    """The posterior of a system with priors; an inference is conditioned on validation rows too."""
    if posterior.inference is not None:
        rows = train if valid is None else tuple(map(torch.cat, zip(train, valid, strict=True)))
        method = _inference(posterior.inference, chains, len(rows[0]))
        seed, progress = training["seed"], training["progress"]
        return fit(system, rows, inference=method, seed=seed, progress=progress)
    # Adam's usual decay: the guide's own parameters have none.
    training = {name: value for name, value in training.items() if name != "weight_decay"}
    training["learning_rate"] = training["learning_rate"] or GUIDES_RATE
    guide = GUIDES[str(posterior.guide)]
    result = fit(system, train, valid=valid, guide=guide, replicates=chains, **training)
    if not result.interrupted:
        settled(result)
    return result


def _inference(name: str, chains: int, rows: int) -> PosteriorInference:
    # A batch is of 100 rows at least where nobody says, and there may be fewer.
    batch: dict[str, Any] = {} if rows >= 100 else {"batch_size": rows}
    made: dict[str, Callable[[], Any]] = {
        "nuts": partial(MCMC, NUTS, samples=CHAIN, warmup=CHAIN, chains=chains),
        "hmc": partial(MCMC, HMC, samples=CHAIN, warmup=CHAIN, chains=chains),
        "sghmc": partial(SGHMC, chains=chains, **batch),
        "sgld": partial(SGLD, chains=chains, **batch),
        "laplace": Laplace,
        "diagonal-laplace": partial(Laplace, diagonal=True),
        "vi": partial(DiagonalVI, **batch),
        "ensemble": partial(Ensemble, **batch),
    }
    return made[name]()
