"""Evidence that a mask entry is needed: Bayes factors and gains, of listed and of drawn masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.special import logit
from torch import Tensor

from lexppl.evaluation.bayes.mask_table import MaskTable, mask_table
from lexppl.evaluation.bayes.simulated import check_rows, parts_of_program
from lexppl.extras import arviz_library
from lexppl.inference.posterior.global_latents import sites_of_run
from lexppl.inference.predictive import drawing
from lexppl.inference.training.result import FitResult


def log_bayes_factors(table: MaskTable) -> Tensor:
    """How far y alone moves the odds that a row needs an entry, `(B, G)`, in nats:

        log p(z_g = 1 | x, y) / p(z_g = 0 | x, y)  −  log p(z_g = 1 | x) / p(z_g = 0 | x)
            = log p(y | x, z_g = 1) / p(y | x, z_g = 0),

    the other entries marginalised by their prior. NaN where the prior never keeps the entry, or
    always does.

    Example:
        >>> masks = torch.tensor([[0.0], [1.0]])
        >>> prior = torch.log(torch.tensor([[0.5], [0.5]]))
        >>> table = MaskTable(masks, prior, torch.log(torch.tensor([[0.1], [0.3]])))
        >>> log_bayes_factors(table).exp()
        tensor([[3.0000]])
    """
    return _conditional(table, 1.0) - _conditional(table, 0.0)


PRIOR_DRAWS = 1_000  # Of the latents that a shared mask's prior may depend on


def feature_evidence(
    program: Any,
    x: Tensor,
    y: Tensor | None = None,
    *,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Whether each mask entry is needed over all rows, within one program:

        gain_g = 1/N Σ_n [log p(y_n | x_n) − log p(y_n | x_n, z_g = 0)],

    masks listed, on rows that the program has not learned from. A program whose prior never leaves
    an entry out cannot be forced.

    Of a fit by :class:`lexppl.inference.MaskGibbs` the draws of masks that all rows share are read,
    and both are of all rows at once: with p = P(z_g = 1 | x, y) and π = P(z_g = 1),

        log_bayes_factor = log p/(1 − p) − log π/(1 − π),   gain = log (1 − π)/(1 − p),

    infinite where all draws agree, the evidence then being beyond what so many draws show.

    Args:
        program: without latents outside `mask_particles()`, of up to 65,536 masks; or a fit by
            MaskGibbs.
        x, y: rows `(B, *event)` and their labels or responses, `(B,)`; of a fit, which has read its
            y, x alone.
        names: of the G entries; their numbers if None, and those of several sites in their order.
        seed: of imputations, or of 1,000 draws of what the prior of a fit's masks depends on.

    Returns:
        one row an entry (means over groups where these have the masks): `gain`, `gain_error` over
        rows, and `z`; `log_bayes_factor`, the sum over rows of :func:`log_bayes_factors`, and its
        Monte Carlo standard error `log_bayes_factor_error`, by the effective draws, 0 where masks
        are listed; `posterior` and `prior`, the means of p(z_g = 1 | x, y) and p(z_g = 1 | x).

    Raises:
        ValueError: y with a fit, or none with a program; a fit whose masks are not drawn, or whose
            prior is weighed by what it observes without y; as :func:`mask_table`.

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, penalty=0.01, hidden=(4,), predictor_hidden=(4,)).program()
        >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
        >>> feature_evidence(program, x, (x[:, 0] > 0).long()).index.tolist()
        [0, 1, 2]
    """
    check_rows(x)
    if (y is None) != (is_fit := isinstance(program, FitResult)):
        raise ValueError("give y with a program, and leave it out with a fit, which has read its y")
    with drawing(seed, x.device):
        columns = _of_draws(program, x) if is_fit else _of_list(program, x, y)
    entries = len(columns["prior"])
    if names is not None and len(names) != entries:
        raise ValueError(f"names must be of {entries} mask entries; there are {len(names)}")
    index = pd.Index(range(entries) if names is None else names, name="entry")
    return pd.DataFrame(columns, index=index)


def _of_list(program: Any, x: Tensor, y: Any) -> dict[str, np.ndarray]:
    """The columns of :func:`feature_evidence` by all masks of a program."""
    table = mask_table(parts_of_program(program).model, x, y)
    if not (entries := table.masks.shape[-1]):
        raise ValueError("the program has no latent in mask_particles(), so there is no feature")
    without = table.log_evidence.unsqueeze(-1) - _conditional(table, 0.0)
    gain = without.double().cpu().numpy()
    single = len(gain) == 1
    error = np.full(entries, np.nan) if single else gain.std(0, ddof=1) / np.sqrt(len(gain))
    prior = torch.softmax(table.log_prior, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = gain.mean(0) / error
    return {
        "gain": gain.mean(0),
        "gain_error": error,
        "z": z,
        "log_bayes_factor": log_bayes_factors(table).double().sum(0).cpu().numpy(),
        "log_bayes_factor_error": np.zeros(entries),
        "posterior": (table.posterior.T @ table.masks).mean(0).cpu().numpy(),
        "prior": (prior.T @ table.masks).mean(0).cpu().numpy(),
    }


def _of_draws(result: FitResult, x: Tensor) -> dict[str, np.ndarray]:
    """The columns of :func:`feature_evidence` by draws of masks and the means of their laws."""
    masks = getattr(result.guides[0], "masks", ())
    if not masks:
        raise ValueError("the fit has no draws of masks: fit it with inference=MaskGibbs(…)")
    laws = []
    for _ in range(PRIOR_DRAWS):
        sites = sites_of_run(result.model, (x[:1], None))
        if beside := [name for name, site in sites.items() if site.observed]:
            raise ValueError(
                f"{beside}, observed without y, weigh the masks' prior: list the masks"
            )
        means = [sites[n].distribution.mean.expand_as(sites[n].value).flatten() for n in masks]
        laws.append(torch.cat(means).double().cpu().numpy())
    drawn = [torch.cat([g.sites[n].flatten(1) for n in masks], 1) for g in result.guides]
    z = torch.stack(drawn).double().cpu().numpy()
    with np.errstate(divide="ignore", invalid="ignore"):
        ess = arviz_library().ess({"z": z}, method="mean")["z"].values
        p, prior = z.mean((0, 1)), np.mean(laws, 0)
        of_prior = np.std(laws, 0, ddof=1) / np.sqrt(PRIOR_DRAWS) / (prior * (1.0 - prior))
        return {
            "gain": np.log1p(-prior) - np.log1p(-p),
            "gain_error": np.full(len(p), np.nan),
            "z": np.full(len(p), np.nan),
            "log_bayes_factor": logit(p) - logit(prior),
            "log_bayes_factor_error": np.sqrt(1.0 / (ess * p * (1.0 - p)) + of_prior**2),
            "posterior": p,
            "prior": prior,
        }


def _conditional(table: MaskTable, value: float) -> Tensor:
    """log p(y | x, z_g = value), `(B, G)`; NaN where the prior has no such mask."""
    columns = []
    for entry in range(table.masks.shape[-1]):
        chosen = table.masks[:, entry] == value
        prior = torch.logsumexp(table.log_prior[chosen], 0)
        joint = torch.logsumexp((table.log_prior + table.log_likelihood)[chosen], 0)
        columns.append(torch.where(prior.isneginf(), torch.nan, joint - prior))
    return torch.stack(columns, -1)
