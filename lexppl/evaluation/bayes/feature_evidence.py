"""Whether a feature is needed: for a row by the odds of its mask, for all by a likelihood ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from lexppl.evaluation.bayes.mask_table import MaskTable, mask_table
from lexppl.evaluation.bayes.simulated import check_rows, parts_of_program
from lexppl.inference.predictive import drawing


def log_bayes_factors(table: MaskTable) -> Tensor:
    """How far y alone moves the odds that a row needs an entry, `(B, G)`, in nats:

        log p(z_g = 1 | x, y) / p(z_g = 0 | x, y)  −  log p(z_g = 1 | x) / p(z_g = 0 | x)
            = log p(y | x, z_g = 1) / p(y | x, z_g = 0),

    the other entries marginalised by their prior. NaN where the prior never keeps the entry, or
    always does.

    Args:
        table: of :func:`mask_table`.

    Example:
        >>> masks = torch.tensor([[0.0], [1.0]])
        >>> prior = torch.log(torch.tensor([[0.5], [0.5]]))
        >>> table = MaskTable(masks, prior, torch.log(torch.tensor([[0.1], [0.3]])))
        >>> log_bayes_factors(table).exp()
        tensor([[3.0000]])
    """
    return _conditional(table, 1.0) - _conditional(table, 0.0)


def feature_evidence(
    program: Any, x: Tensor, y: Tensor, *, names: Sequence[str] | None = None, seed: int = 0
) -> pd.DataFrame:
    """Whether each mask entry is needed over all rows, within one program:

        gain_g = 1/N Σ_n [log p(y_n | x_n) − log p(y_n | x_n, z_g = 0)],

    masks listed, on rows that the program has not learned from. A program whose prior never leaves
    an entry out cannot be forced.

    Args:
        program: without latents outside `mask_particles()`, of up to 65,536 masks.
        x, y: rows `(B, *event)` and their labels or responses, `(B,)`.
        names: of the G entries; their numbers if None.

    Returns:
        one row an entry (means over groups where these have the masks): `gain`, `gain_error` over
        rows, and `z`; `log_bayes_factor`, the sum over rows of :func:`log_bayes_factors`;
        `posterior` and `prior`, the means of p(z_g = 1 | x, y) and p(z_g = 1 | x).

    Raises:
        ValueError: names of another number; what :func:`mask_table` refuses.

    Example:
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, penalty=0.01, hidden=(4,), predictor_hidden=(4,)).program()
        >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
        >>> feature_evidence(program, x, (x[:, 0] > 0).long()).index.tolist()
        [0, 1, 2]
    """
    check_rows(x)
    model = parts_of_program(program).model
    with drawing(seed, x.device):
        table = mask_table(model, x, y)
    entries = table.masks.shape[-1]
    if names is not None and len(names) != entries:
        raise ValueError(f"names must be of {entries} mask entries; there are {len(names)}")
    without = table.log_evidence.unsqueeze(-1) - _conditional(table, 0.0)
    factors = log_bayes_factors(table)
    gain = without.double().cpu().numpy()
    one = len(gain) == 1
    error = np.full(entries, np.nan) if one else gain.std(0, ddof=1) / np.sqrt(len(gain))
    prior = torch.softmax(table.log_prior, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = gain.mean(0) / error
    return pd.DataFrame(
        {
            "gain": gain.mean(0),
            "gain_error": error,
            "z": z,
            "log_bayes_factor": factors.double().sum(0).cpu().numpy(),
            "posterior": (table.posterior.T @ table.masks).mean(0).cpu().numpy(),
            "prior": (prior.T @ table.masks).mean(0).cpu().numpy(),
        },
        index=pd.Index(range(entries) if names is None else names, name="entry"),
    )


def _conditional(table: MaskTable, value: float) -> Tensor:
    """log p(y | x, z_g = value), `(B, G)`; NaN where the prior has no such mask."""
    columns = []
    for entry in range(table.masks.shape[-1]):
        own = table.masks[:, entry] == value
        prior = torch.logsumexp(table.log_prior[own], 0)
        joint = torch.logsumexp((table.log_prior + table.log_likelihood)[own], 0)
        columns.append(torch.where(prior.isneginf(), torch.nan, joint - prior))
    return torch.stack(columns, -1)
