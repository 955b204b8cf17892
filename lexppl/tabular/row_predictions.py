"""Predictions of a fitted explainer that depend on the row alone, not on the rows beside it."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from lexppl.evaluation.prediction import outcome
from lexppl.explanation.masks.draws import RESPONSE
from lexppl.explanation.masks.program_sites import ProgramSites, sites_of
from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.inference.objective.program import ParticleTrace, Site, row_marginals
from lexppl.inference.predictive import FittedProgram, drawing, rows_at_once
from lexppl.inference.training.result import FitResult
from lexppl.tabular.common_random_numbers import CommonRandomNumbers

Read = Callable[[ParticleTrace], Tensor]
"""What is wanted of a run of one row."""


def row_predictions(result: FitResult, x: Tensor, masks: int, seed: int) -> Tensor:
    r"""What a fitted explainer predicts of each row, averaged over L masks and the R replicates,

        p(y = c | x) = 1/(RL) Σ_{r,l} p_r(y = c | x̃_{r,l}),   z_{r,l} ~ p_r(z | x).

    All rows share the random numbers of the L draws, so that a row has the same prediction alone
    and among others; each row's is unbiased. Latents that all rows share are drawn L times from the
    fit's guide.

    Args:
        result: of :func:`lexppl.inference.fit`.
        x: rows, `(N, D)`; computed in their type.
        masks: L.
        seed: of the draws.

    Returns:
        probabilities `(N, C)`, or mean responses `(N,)`.

    Raises:
        ValueError: rows unlike those of the fit.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
        >>> model = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(model, (x, (x[:, 0] > 0).long()), epochs=1, progress=False)
        >>> together = row_predictions(result, x.double(), masks=20, seed=0)
        >>> alone = row_predictions(result, x[7:8].double(), masks=20, seed=0)
        >>> torch.allclose(together[7:8], alone, atol=1e-12)
        True
    """

    def prediction(run: ParticleTrace) -> Tensor:
        return outcome(run).mean((0, 1)).squeeze(0)

    return _over_replicates(result, x, lambda sites: (masks, prediction), masks, seed)


def row_importances(result: FitResult, x: Tensor, masks: int, seed: int) -> Tensor:
    """E[z | x] of each row, averaged over the replicates: by the masks' distribution where it
    states its mean, else over L draws whose random numbers all rows share.

    Args:
        result, x, masks, seed: as in :func:`row_predictions`.

    Returns:
        `(N, G)`.

    Raises:
        ValueError: rows unlike those of the fit.
    """

    def reading(sites: ProgramSites) -> tuple[int, Read]:
        site = sites.masks[0]
        return 1 if site.states_mean else masks, lambda run: _selection(run.sites[site.name])

    return _over_replicates(result, x, reading, masks, seed)


def _over_replicates(
    result: FitResult,
    x: Tensor,
    reading: Callable[[ProgramSites], tuple[int, Read]],
    draws: int,
    seed: int,
) -> Tensor:
    """The mean over replicates, and over draws of the latents that rows share, of what is read."""
    result.check(x, in_type=False)
    values = []
    for model, guide in zip(result.models, result.guides, strict=True):
        model, guide = _in_type(model, x.dtype), _in_type(guide, x.dtype)
        with drawing(seed, x.device):
            sites = sites_of(model, x[:1])
            masks, read = reading(sites)
            outer = sites.has_outer_latents
            program = FittedProgram(
                model, guide, (x[:1], None), draws if outer else masks, outer=outer
            )
            values.append(_of_rows(program, x, masks, read, seed))
    return torch.stack(values).mean(0)


def _of_rows(program: FittedProgram, x: Tensor, masks: int, read: Read, seed: int) -> Tensor:
    def one(row: Tensor) -> Tensor:
        with CommonRandomNumbers():
            runs = program.runs((row.unsqueeze(0), None), draw=_no_response)
            return torch.stack([read(run) for run, _ in runs]).mean(0)

    # Every row sees the same random numbers, and every chunk starts from the same seed.
    each = torch.func.vmap(one, randomness="same")
    parts = []
    for rows in x.split(rows_at_once(x, masks)):
        with seeded(seed, x.device):
            parts.append(each(rows))
    return torch.cat(parts)


def _no_response(site: Site) -> Tensor | None:
    """A response that nobody reads; its distribution alone is wanted."""
    if site.name != RESPONSE:
        return None
    return torch.zeros(site.distribution.shape())


def _selection(site: Site) -> Tensor:
    """E[z | x] of one row, `(G,)`."""
    try:
        mean = row_marginals(site)
    except ValueError:
        if site.value is None:
            raise
        mean = site.value
    return mean.flatten(0, -2).mean(0)


def _in_type(module: Any, dtype: torch.dtype) -> Any:
    """A copy of a module that computes in the type of the rows."""
    if not isinstance(module, nn.Module):
        return module
    own = copy.deepcopy(module).to(dtype).eval()
    keep_parameters_local(own)
    return own
