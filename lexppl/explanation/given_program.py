"""Wrap a user's Pyro program, with its guide or posterior samples, as a FitResult."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from pyro.nn import PyroModule
from torch import Tensor

from lexppl.argument_checks import refuse_not_finite, shaped
from lexppl.explanation.program_sites import ProgramSites, SharedSite
from lexppl.inference.posterior.global_draws import GlobalDraws, SampledGuide, SamplerRecord
from lexppl.inference.predictive import sites_of_guide
from lexppl.inference.pyro_parameters import with_module
from lexppl.inference.training.result import FitResult, untrained

RETURNED = "_RETURN"  # What Pyro's `Predictive` calls the value that the program returns


class SampledWithMasks(PyroModule):
    """Draws of the latents that rows share, and a guide that proposes the masks."""

    def __init__(self, sampled: SampledGuide, masks: Any) -> None:
        super().__init__()
        self.sampled, self.masks = sampled, masks

    @property
    def draws(self) -> int:
        """Number of draws, S."""
        return self.sampled.draws

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Give one of the draws, and propose masks."""
        self.sampled(*args, **kwargs)
        self.masks(*args, **kwargs)


def as_fitted(program: Any, x: Any, guide: Any) -> FitResult:
    """A program and its guide as a fit without a history; a fit as it is."""
    if isinstance(program, FitResult):
        if guide is not None:
            raise ValueError("guide is of a program, and a fit has its own; leave guide out")
        return program
    if hasattr(program, "result_"):
        raise TypeError(
            f"program is {type(program).__name__}, which explains tables by its own explain(X); "
            "here its fit can be given, which is its result_"
        )
    if not callable(program) or isinstance(program, type):
        raise TypeError(f"program must be a fit or a Pyro program of (x, y); it is {program!r}")
    if guide is not None and (not callable(guide) or isinstance(guide, type)):
        raise TypeError(f"guide must be a fitted guide, called as guide(x, y); it is {guide!r}")
    models, guides = [with_module(program)], [with_module(guide)]
    return untrained(models, guides, event_shape=tuple(np.shape(x)[1:]), labels=None, seed=0)


def with_samples(
    result: FitResult, samples: Mapping[str, Any], sites: ProgramSites, dtype: torch.dtype
) -> FitResult:
    """A program whose latents that rows share have a sampler's values, `(S, *value)` by site, or
    `(C, S, *value)` by chain; samples of its other sites are left out."""
    if not isinstance(samples, Mapping):
        raise TypeError(f"samples must be a dict of draws by site; it is {type(samples).__name__}")
    if result.replicates > 1 or result.sampler is not None:
        raise ValueError(
            f"samples are of one program, and the fit has {result.replicates} models; give the one "
            "that was sampled, such as result.model"
        )
    values = _checked(samples, sites, dtype)
    masks = result.guides[0]
    draws = GlobalDraws(values, SamplerRecord("the samples given", are_chains=True), result.model)
    guides: list[Any] = draws.guides()
    if masks is not None:
        guides = [SampledWithMasks(guide, masks) for guide in guides]
    chains = draws.chains
    return replace(
        result,
        models=[result.model] * chains,
        guides=guides,
        best_epoch=np.zeros(chains, dtype=int),
        best_valid=np.full(chains, np.nan),
        collapse=[None] * chains,
        sampler=draws.sampler,
    )


def _checked(
    samples: Mapping[str, Any], sites: ProgramSites, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The draws `(C, S, *value)` of the latents that rows share."""
    shared = {site.name: site for site in sites.shared}
    unknown = [name for name in samples if name not in sites.names and name != RETURNED]
    missing = [name for name in shared if name not in samples]
    if unknown or missing or not shared:
        raise ValueError(
            f"samples must be of the latents that all rows share, {list(shared) or 'none here'}; "
            f"they are of {list(samples)}"
            + (f", and the program does not sample {unknown}" if unknown else "")
        )
    tensors = {name: torch.as_tensor(samples[name]) for name in shared}
    # Predictive puts a dimension of one entry for each plate between draws and event.
    padded = any(tensors[name].dim() - len(site.shape) > 2 for name, site in shared.items())
    values = {n: _of_site(tensors[n], site, dtype, padded) for n, site in shared.items()}
    counts = {name: tuple(drawn.shape[:2]) for name, drawn in values.items()}
    if len(set(counts.values())) > 1:
        raise ValueError(f"all sites must have as many chains and draws; they have {counts}")
    return values


def _of_site(values: Tensor, site: SharedSite, dtype: torch.dtype, padded: bool) -> Tensor:
    """Draws of a site, `(C, S, *value)`."""
    shape = tuple(values.shape)
    leading = len(shape) - len(site.shape)
    if padded and leading > 1 and set(shape[1:leading]) == {1}:
        values = values.flatten(0, leading - 1)
        leading = 1
    name = f"samples[{site.name!r}]"
    shaped(name, values, ("S", *site.shape), ("C", "S", *site.shape), filled=True)
    refuse_not_finite(name, values)
    if values.is_floating_point():
        values = values.to(dtype)
    return values if leading == 2 else values.unsqueeze(0)


def refuse_uncovered(result: FitResult, sites: ProgramSites, args: tuple[Any, ...]) -> None:
    """Refuse a program with a latent that all rows share and no guide covers."""
    names = [site.name for site in sites.shared]
    if not names:
        return
    guide = result.guides[0]
    sampled = guide.sampled if isinstance(guide, SampledWithMasks) else guide
    covered: Any = ()
    if isinstance(sampled, SampledGuide):
        covered = sampled.sites
    elif guide is not None:
        covered = sites_of_guide(guide, args)
    missing = [name for name in names if name not in covered]
    if missing:
        raise ValueError(
            f"the program samples {missing} for all rows, and "
            + ("there is no guide" if guide is None else "the guide does not cover them")
            + ": give a guide that does, or draws of them, such as samples=mcmc.get_samples()"
        )


def sampled_draws(guide: Callable[..., Any] | None) -> int | None:
    """S of a guide that gives draws of a sampler, else None."""
    return guide.draws if isinstance(guide, SampledGuide | SampledWithMasks) else None
