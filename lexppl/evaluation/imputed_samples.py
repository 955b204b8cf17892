"""Rows whose hidden features are imputed by an explainer's imputer."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexppl.evaluation.forced_runs import ForcedRuns, Run
from lexppl.evaluation.truth.selection import check_binary
from lexppl.explanation.given_program import as_fitted
from lexppl.inference.objective.program import ParticleTrace

SITE = "x_imputed"
"""The site of imputed rows in the library's programs."""


@dataclass(frozen=True, eq=False)
class ImputedSamples:
    """Rows, a mask of each, and what the imputer makes of them.

    Args:
        x: the rows, `(N, *event)`.
        masks: of their entries, `(N, G)`.
        keep: of their features, `(N, *event)`.
        samples: imputed rows, `(N, S, *event)`.
    """

    x: NDArray[Any]
    masks: NDArray[Any]
    keep: NDArray[Any]
    samples: NDArray[Any]


def imputed_samples(
    program: Any, x: Any, masks: Any = None, *, samples: int = 4, seed: int = 0
) -> ImputedSamples:
    """Draw x̃ ~ p_ι(x̃ | x, z): rows with what the mask z hides filled in by the program's imputer.

    Args:
        program: a fit, or a Pyro program, with a site `x_imputed`, as those of `lexppl.systems`
            have that impute; of several replicates the best.
        x: rows, `(N, *event)`.
        masks: one for each row, `(N, G)` of 0 and 1; a draw of p(z | x) if None.
        samples: S.
        seed: of the draws. Global random state is left alone.

    Raises:
        TypeError: neither a fit nor a program.
        ValueError: rows unlike those of the fit; masks of another shape, or of other values than 0
            and 1; a program that imputes nothing.

    Source: Senetaire et al. 2023, eq. 4 and figure 1.

    Example:
        >>> from lexppl.models import GaussianImputer
        >>> from lexppl.systems import lex
        >>> program = lex(3, classes=2, k=1, imputer=GaussianImputer()).program()
        >>> found = imputed_samples(program, torch.ones(2, 3), [[1, 0, 0], [0, 0, 1]], samples=5)
        >>> found.samples.shape, found.samples[1, :, 2].tolist()
        ((2, 5, 3), [1.0, 1.0, 1.0, 1.0, 1.0])
    """
    result = as_fitted(program, x, None)
    runs = ForcedRuns(result, x, masks=1, imputations=samples, seed=seed, what="imputed samples")
    forced = None if masks is None else _checked(masks, len(runs.rows), runs.mask.entries)

    def work(run: Run, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        own = None if forced is None else [forced[rows].to(runs.rows.x).unsqueeze(0)]
        drawn, both = run(own)
        return drawn[0][0], both[0, :, 0], both[0, :, 1:]

    parts = runs.each(_imputed, work)[result.best]
    mask, keep, imputed = (torch.cat(own).cpu().numpy() for own in zip(*parts, strict=True))
    rows = runs.rows.x.detach().cpu().numpy()
    return ImputedSamples(rows, mask, keep, imputed)


def _imputed(run: ParticleTrace, masks: int) -> Tensor:
    """What is kept, and the imputed rows of each mask, `(L, B, 1 + S, *event)`."""
    site = run.sites.get(SITE)
    if site is None or not hasattr(site.distribution, "keep"):
        raise ValueError(
            f"the program imputes nothing at a site {SITE!r}; it has {list(run.sites)}"
        )
    value = torch.as_tensor(site.value)
    if site.distribution.keep.shape[-1] != value.shape[-1]:
        raise ValueError(
            f"imputed rows must have the rows' own shape; {SITE!r} has shape {tuple(value.shape)}, "
            f"and what is kept {tuple(site.distribution.keep.shape)}"
        )
    keep = site.distribution.keep.to(value.dtype).expand(value.shape[1:])
    return torch.cat([keep.unsqueeze(0), value]).movedim(0, 2)


def _checked(masks: Any, rows: int, entries: int) -> Tensor:
    forced = masks if isinstance(masks, Tensor) else torch.as_tensor(np.asarray(masks))
    check_binary("masks", forced, (rows, entries))
    return forced
