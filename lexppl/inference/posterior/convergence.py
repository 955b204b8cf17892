"""Convergence of chains: r̂ and effective numbers of draws by ArviZ, and warnings."""

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor

from lexppl.inference.posterior.global_draws import SamplerRecord

MOST_R_HAT = 1.01
LEAST_ESS = 400
"""Below it r̂ and quantiles are not to be relied on (Vehtari et al. 2021)."""


class SamplerWarning(UserWarning):
    """Draws of a sampler that are not to be relied on as they are."""


def with_convergence(record: SamplerRecord, samples: Mapping[str, Tensor]) -> SamplerRecord:
    """The record with r̂ and ESS of samples `(C, S, *event)` (Vehtari et al. 2021), by ArviZ."""
    chains, draws = next(iter(samples.values())).shape[:2]
    if not record.are_chains or draws < 4:
        return record
    with warnings.catch_warnings():
        # ArviZ 0.2x announces its successor on import.
        warnings.simplefilter("ignore", FutureWarning)
        # Slow, and not needed to import the library.
        import arviz  # noqa: PLC0415
        import xarray as xr  # noqa: PLC0415
    flat = np.concatenate(
        [values.reshape(chains, draws, -1).cpu().numpy() for values in samples.values()], -1
    )
    named = xr.Dataset({"value": (("chain", "draw", "number"), flat)})
    with np.errstate(invalid="ignore", divide="ignore"):
        sizes = [arviz.ess(named, method=method)["value"].values for method in ("bulk", "tail")]
        r_hat = arviz.rhat(named)["value"].values if chains > 1 else None
    return replace(
        record,
        # A number that never moves has none, and is no sign of agreement.
        r_hat=None if r_hat is None else float(np.nan_to_num(r_hat, nan=np.inf).max()),
        ess=float(np.nan_to_num(np.stack(sizes)).min()),
    )


def warn_of(record: SamplerRecord) -> None:
    """Warn of chains that disagree, that are worth few draws, or whose trajectories diverged."""
    found = []
    if record.r_hat is not None and record.r_hat > MOST_R_HAT:
        found.append(
            f"the chains of {record.name} disagree: r̂ is up to {record.r_hat:.3f}, and where they "
            f"agree it is below {MOST_R_HAT}. Their draws may not be those of one posterior: run "
            "them longer (warmup=, samples=), or look for several modes, such as hidden units that "
            "can change places"
        )
    elif record.ess is not None and record.ess < LEAST_ESS:
        found.append(
            f"the chains of {record.name} are worth {record.ess:.0f} independent draws, too few "
            f"for intervals ({LEAST_ESS} are enough): give more samples="
        )
    if record.divergences:
        draws = np.size(record.sample_stats["diverging"])
        found.append(
            f"{record.divergences} of {draws:,} draws of {record.name} diverged, where the "
            "posterior bends too sharply for its steps, and what lies there is missing: give a "
            "higher target_accept_prob, as partial(NUTS, target_accept_prob=0.95), or write a "
            "hierarchical prior as scale * pyro.sample(…, Normal(0, 1))"
        )
    for text in found:
        warnings.warn(text, SamplerWarning, stacklevel=4)
