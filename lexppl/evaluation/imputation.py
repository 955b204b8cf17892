"""Imputers: scores on hidden values that are known (log-likelihood, CRPS), and imputed rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyro.distributions as dist
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.argument_checks import (
    check_binary,
    fraction,
    int_at_least,
    one_of,
    refuse_not_finite,
    shaped,
)
from lexppl.evaluation.effects import ForcedRuns, Run
from lexppl.evaluation.prediction import mean_errors
from lexppl.explanation.given_program import as_fitted
from lexppl.inference.batches import writable
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.objective.program import ParticleTrace

RATES = (0.1, 0.3, 0.5, 0.7, 0.9)

NUMBERS_AT_ONCE = 2**22  # Most numbers of the draws of one part of the rows


@dataclass(frozen=True, eq=False)
class ImputationScores:
    """The scores of :func:`imputation`, of each row: `log_likelihood` in nats a hidden value (NaN
    for an imputer without a density) and `crps` in the units of the features, `(I, M, N)` for I
    imputers, M rates and N rows."""

    log_likelihood: Tensor
    crps: Tensor
    imputers: tuple[str, ...]
    rates: tuple[float, ...]

    @property
    def table(self) -> pd.DataFrame:
        """Means over rows, by `imputer` and `rate`: `log_likelihood`, the larger the better,
        `crps`, the smaller the better, and their standard errors `_error`, `sd / √N`, NaN for one
        row."""
        scores = {"log_likelihood": self.log_likelihood, "crps": self.crps}
        return self._table(self.imputers, scores)

    def against(self, imputer: str) -> pd.DataFrame:
        """How much better each imputer is than one of them on the same rows and masks: by `imputer`
        and `rate` `log_likelihood` and `crps`, above 0 where better, their paired `_error`, and
        `_z`.
        """
        place = self.imputers.index(one_of(self.imputers, "imputer", imputer))
        chosen = [other for other in range(len(self.imputers)) if other != place]
        more = self.log_likelihood[chosen] - self.log_likelihood[place]
        less = self.crps[place] - self.crps[chosen]
        names = [self.imputers[other] for other in chosen]
        table = self._table(names, {"log_likelihood": more, "crps": less})
        for name in ("log_likelihood", "crps"):
            table[f"{name}_z"] = table[name] / table[f"{name}_error"]
        return table

    def _table(self, imputers: Sequence[str], by_row: Mapping[str, Tensor]) -> pd.DataFrame:
        columns = {}
        for name, scores in by_row.items():
            rows = scores.numpy().reshape(-1, scores.shape[-1])
            columns[name], columns[f"{name}_error"] = rows.mean(-1), mean_errors(rows)
        index = pd.MultiIndex.from_product([imputers, self.rates], names=["imputer", "rate"])
        return pd.DataFrame(columns, index=index)


def imputation(
    imputers: Mapping[str, nn.Module],
    rows: Any,
    *,
    rates: Sequence[float] = RATES,
    draws: int = 50,
    grouping: nn.Module | None = None,
    seed: int = 0,
) -> ImputationScores:
    """How well imputers know hidden values from the kept ones, by the share that is hidden.

    Of each row and rate, `max(1, round(rate · G))` of its G mask entries are hidden at random, the
    same ones for every imputer. With the hidden features H and the kept ones S of a row

        log_likelihood = log p(x_H | x_S) / |H|,
        crps = 1/|H| Σ_{d ∈ H} ( E|u_d − x_d| − ½ E|u_d − u'_d| ),    u, u' ~ p(· | x_S),

    the expectations by m draws, without bias ("fair"):

        (1/m) Σ_i |u_i − x| − 1/(2m(m−1)) Σ_{i,j} |u_i − u_j|.

    The log-likelihood is of the hidden values together, for imputers with a density; the continuous
    ranked probability score (CRPS) is of one value at a time, for all imputers, and of an imputer
    of points its mean absolute error. Both are proper. The log-likelihood of an imputer of steps,
    such as :class:`lexppl.models.DiscretizedLogisticMixtureImputer`, is the probability of a value
    over the width of its step. One whose density is an integral, such as
    :class:`lexppl.models.VAEACImputer`, gives a lower bound by `draws` draws.

    Args:
        imputers: by name.
        rows: held-out rows, `(N, *event)`, but not those that judge the explainer.
        rates: shares of the entries that are hidden, in (0, 1).
        draws: m, of each row and rate, 2 or more.
        grouping: from G mask entries to features; an entry for each feature if None.

    Raises:
        TypeError: what are no imputers.
        ValueError: no imputers, no rows, values that are not finite, an imputer that leaves gaps or
            takes rows of another shape, or a rate or number out of its range.

    Source: Gneiting, Raftery. Strictly proper scoring rules, prediction, and estimation. JASA 2007,
        § 4.2; Ferro. Fair scores for ensemble forecasts. QJRMS 2014.

    Example:
        >>> from lexppl.models import ConditionalGaussianImputer, GaussianImputer
        >>> common = torch.randn(200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = common + 0.1 * torch.randn(200, 3, generator=torch.Generator().manual_seed(1))
        >>> given = {"conditional": ConditionalGaussianImputer.fit(x[:100]),
        ...     "alone": GaussianImputer.fit(x[:100])}
        >>> imputation(given, x[100:], rates=[0.3]).table["crps"].idxmin()[0]
        'conditional'
    """
    x = rows if isinstance(rows, Tensor) else torch.from_numpy(writable(rows))
    x = x if x.is_floating_point() else x.to(torch.get_default_dtype())
    shaped("rows", x, "N *event", filled=True)
    refuse_not_finite("rows", x)
    rates = tuple(fraction("a rate", rate, of="the entries") for rate in rates)
    if not rates or not isinstance(imputers, Mapping) or not imputers:
        raise ValueError("give one rate or more, and a mapping of one imputer or more by name")
    for name, imputer in imputers.items():
        if not isinstance(imputer, nn.Module):
            raise TypeError(f"the imputer {name!r} is a {type(imputer).__name__}, not a module")
        if getattr(imputer, "leaves_gaps", False):
            raise ValueError(f"imputer {name!r} leaves hidden features missing: nothing to score")
    draws, seed = int_at_least("draws", draws, 2), int_at_least("seed", seed, 0)
    entries = x[0].numel() if grouping is None else int(getattr(grouping, "entries", 0))
    # Rows are often made from the same small seed, and must not be those of the draws.
    of_masks, of_draws = (int(s) for s in np.random.SeedSequence(seed).generate_state(2))
    scores = []
    with torch.no_grad(), program_settings(validate=False):
        with seeded(of_masks):
            masks = [_keep(x, entries, rate, grouping) for rate in rates]
        for imputer in imputers.values():
            # From the same state, so that one imputer's draws do not depend on the others.
            with seeded(of_draws, x.device):
                scores.append([_scored(imputer, x, keep, draws) for keep in masks])
    both = torch.stack(
        [torch.stack([torch.stack(of_rate) for of_rate in of_imputer]) for of_imputer in scores]
    )
    return ImputationScores(both[:, :, 0], both[:, :, 1], tuple(imputers), rates)


def fair_crps(draws: Tensor, value: Tensor) -> Tensor:
    """`(1/m) Σ_i |u_i − x| − 1/(2m(m−1)) Σ_{i,j} |u_i − u_j|` of draws u `(m, …)` and x `(…)`."""
    count = len(draws)
    rank = 2 * torch.arange(1, count + 1, device=draws.device, dtype=draws.dtype) - count - 1
    ordered = (draws - value).sort(0).values
    spread = torch.einsum("m,m...->...", rank, ordered) / (count * (count - 1))
    return ordered.abs().mean(0) - spread


def _scored(imputer: nn.Module, x: Tensor, keep: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    size = max(1, NUMBERS_AT_ONCE // (draws * x[0].numel()))
    parts = []
    for rows, mask in zip(x.split(size), keep.split(size), strict=True):
        hidden = ~mask.flatten(1)
        distribution = imputer(rows, mask)
        sample = distribution.expand((draws, len(rows))).sample().flatten(2)
        by_entry = fair_crps(sample.double(), rows.flatten(1).double())
        count = hidden.sum(-1)
        crps = torch.where(hidden, by_entry, 0).sum(-1) / count
        density = _log_density(imputer, distribution, rows, mask, draws) / count
        parts.append((density, crps))
    density, crps = (torch.cat(column) for column in zip(*parts, strict=True))
    return density.cpu(), crps.cpu()


def _log_density(
    imputer: nn.Module, distribution: Any, x: Tensor, keep: Tensor, draws: int
) -> Tensor:
    """Of the hidden values of each row given the kept ones, in nats; NaN where there is none."""
    none = torch.full((len(x),), torch.nan, dtype=torch.float64, device=x.device)
    if isinstance(getattr(distribution, "hidden_distribution", distribution), dist.Delta):
        return none
    bound = getattr(imputer, "log_likelihood_bound", None)
    try:
        density: Tensor = distribution.log_prob(x) if bound is None else bound(x, keep, draws)
    except NotImplementedError:
        return none
    step = getattr(imputer, "step", None)
    if step is not None:
        density = density - (~keep).flatten(1).sum(-1) * math.log(step)
    return density.double()


def _keep(x: Tensor, entries: int, rate: float, grouping: nn.Module | None) -> Tensor:
    """What is kept of each row, boolean, of the shape of `x`."""
    hidden = min(entries, max(1, round(rate * entries)))
    order = torch.rand(len(x), entries).argsort(-1).argsort(-1)
    keep = (order >= hidden).to(x.dtype)
    if grouping is None:
        return keep.bool().reshape(x.shape).to(x.device)
    return grouping(keep.to(x.device)).expand(x.shape).bool()


SITE = "x_imputed"  # The site of imputed rows in the library's programs


@dataclass(frozen=True, eq=False)
class ImputedSamples:
    """Rows `(N, *event)`, masks `(N, G)`, what these keep, and imputed rows `(N, S, *event)`."""

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
    forced: Tensor | None = None
    if masks is not None:
        forced = masks if isinstance(masks, Tensor) else torch.as_tensor(np.asarray(masks))
        check_binary("masks", forced, (len(runs.rows), runs.mask.entries))

    def work(run: Run, rows: slice) -> tuple[Tensor, Tensor, Tensor]:
        fixed = None if forced is None else [forced[rows].to(runs.rows.x).unsqueeze(0)]
        drawn, both = run(fixed)
        return drawn[0][0], both[0, :, 0], both[0, :, 1:]

    drawn = [values[result.best].cpu().numpy() for values in runs.each(_imputed, work)]
    return ImputedSamples(runs.rows.x.detach().cpu().numpy(), *drawn)


def _imputed(run: ParticleTrace, masks: int) -> Tensor:
    """What is kept, and the imputed rows of each mask, `(L, B, 1 + S, *event)`."""
    site = run.sites.get(SITE)
    if site is None or not hasattr(site.distribution, "keep"):
        raise ValueError(f"the program imputes nothing at {SITE!r}; it has {list(run.sites)}")
    value = torch.as_tensor(site.value)
    if site.distribution.keep.shape[-1] != value.shape[-1]:
        raise ValueError(
            f"imputed rows must have the rows' own shape; {SITE!r} has shape {tuple(value.shape)}, "
            f"and what is kept {tuple(site.distribution.keep.shape)}"
        )
    keep = site.distribution.keep.to(value.dtype).expand(value.shape[1:])
    return torch.cat([keep.unsqueeze(0), value]).movedim(0, 2)
