"""What keeping a feature is worth in nats, and which features are found at a false discovery
rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import false_discovery_control, t
from torch import Tensor, nn

from lexppl.argument_checks import fraction, int_at_least, int_between
from lexppl.evaluation.prediction import log_weights
from lexppl.explanation.importance_kind import KINDS
from lexppl.explanation.named_rows import entry_names as names_of
from lexppl.explanation.named_rows import named_rows
from lexppl.explanation.program_sites import MaskSite, sites_of
from lexppl.explanation.ranking import mean_error
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.site import Site
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.row_weights import DIRICHLET

LARGEST_SEED = 2**62


@dataclass(frozen=True, eq=False)
class FeatureGains:
    """The gains of :func:`feature_gains`.

    Args:
        gains: in nats, `(R, N, G)` in double precision: of each replicate, row and mask entry.
        entry_names: of the G mask entries.
        errors: standard errors of the gains by their draws, `(R, N, G)`, NaN of a single draw; None
            where they are not known.
        bootstrapped: whether each replicate has random weights of the rows of the fit.
    """

    gains: Tensor
    entry_names: tuple[str, ...]
    errors: Tensor | None = None
    bootstrapped: bool = False


def feature_gains(
    result: FitResult,
    x: Any,
    y: Any,
    *,
    masks: int = 20,
    imputations: int = 1,
    seed: int = 0,
    rows_per_chunk: int | None = None,
    entry_names: Sequence[str] | None = None,
) -> FeatureGains:
    r"""What keeping each feature is worth against hiding it, row by row:

        gain_{n,g} = E_{z ~ q(z|x_n)} [ log p̂(y_n | x_n, z_g = 1, z_{−g})
                                        − log p̂(y_n | x_n, z_g = 0, z_{−g}) ],
        log p̂(y | x, z) = log 1/K Σ_k p(y | x̃_k),    x̃_k ~ p(x̃ | x, z),

    by L draws of z from the explainer. A draw that keeps g is run again without it, and one that
    hides g is run again with it, on the same random numbers, so that what does not depend on g
    cancels. This is leave-one-covariate-out with the explainer's own masks in place of refits.

    **The rows must be held out**: on rows that a predictor has learned from, keeping anything that
    tells the rows apart pays, also a column of pure noise. Rows that chose the best epoch or a
    setting are not quite held out either. Within a fit, cross-fitting (`fit(…, folds=2)`) sees to
    that for the selector; it does not make the fit's own rows fit for this function.

    How to read it:

    - The mean over rows is at most 0 for a feature of which neither y nor the mask tells anything
      beyond the kept ones, where hidden features are drawn from their distribution given the kept
      ones: 0 with K = 1, as the imputed value is then as likely as the row's own, and below 0 as K
      grows, by Jensen's inequality. Other imputers, such as a constant, or the marginal
      distribution of features that depend on each other, give no such guarantee: the predictor may
      err on what they make up, and a gain then also says that hiding harms.
    - The gain may be below 0 as the predictor overfits a feature, a true one too.
    - It is conditional: a feature that repeats a kept one gains little, and one that stands in for
      a hidden one gains.
    - A mask of k entries has one more or one less for the entry that is forced; the predictor may
      have seen few of that size.
    - Of a grouping an entry is its group of columns, kept or hidden together.
    - Probabilities `y` of labels give the expectation `Σ_c y_c gain(c)`.
    - Global latents (weights with a guide) are drawn L times from their guide, one mask each; the
      log stands inside that expectation too.

    Args:
        result: of :func:`lexppl.inference.fit`; its first mask site is judged, which must select.
        x: held-out rows, `(N, *event)`: a tensor, or an array.
        y: labels or responses `(N,)`, or a black box's probabilities `(N, C)`.
        masks: L draws a row.
        imputations: K.
        seed: of the draws; they depend on the chunks too. Global random state is left alone.
        rows_per_chunk: rows that are run at once; None to choose by their size.
        entry_names: names of the G entries; if None those of the fit, as in
            :func:`lexppl.explain`.

    Raises:
        ValueError: as :func:`lexppl.evaluation.predictive_log_likelihood`; masks that are not
            selections (shares, strengths, attributions); a program that observes all rows
            together, or has latents of rows outside its particle plates, whose guide has seen y.
        FloatingPointError: a log-likelihood that is NaN or −∞, which has no gain.

    Source:
        Lei, G'Sell, Rinaldo, Tibshirani, Wasserman. Distribution-free predictive inference for
        regression. JASA 2018, § 6. Watson, Wright. Testing conditional independence in supervised
        learning algorithms. Machine Learning 2021.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models import (LEX, MLP, BernoulliSelector, CategoricalLikelihood,
        ...     GaussianImputer, Predictor)
        >>> x = torch.randn(800, 2, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> model = LEX(BernoulliSelector(MLP(2, 2, (8,), seed=0)), GaussianImputer(),
        ...     Predictor(MLP(2, 2, (8,), seed=1), CategoricalLikelihood()))
        >>> result = fit(model, (x[:400], y[:400]), epochs=20, batch_size=50, learning_rate=1e-2,
        ...     progress=False)
        >>> gains = feature_gains(result, x[400:], y[400:])
        >>> gains.gains.shape
        torch.Size([1, 400, 2])
        >>> gain_table(gains)["found"].to_dict()
        {'x1': True, 'x2': False}
    """
    for name, count in (("masks", masks), ("imputations", imputations)):
        int_at_least(name, count)
    int_at_least("seed", seed, 0)
    if y is None:
        raise ValueError("a gain is one of predicting y: give the rows' y")
    given = named_rows(result, x, y, None)
    x, y = given.arguments(slice(None))
    for module in (*result.models, *result.guides):
        if isinstance(module, nn.Module):
            keep_parameters_local(module)
    with drawing(seed, x.device):
        sites = sites_of(result.model, x[:1])
    given.check_response(sites.response)
    mask = sites.masks[0]
    _refuse_soft(mask)
    names = tuple(map(str, names_of(result, mask.entries, entry_names)))
    chunk = rows_at_once(x, masks * imputations, rows_per_chunk, sites.widest)
    seeds = torch.Generator().manual_seed(seed)
    gains, errors = [], []
    for model, guide in zip(result.models, result.guides, strict=True):
        with drawing(_seed(seeds), x.device):
            program = FittedProgram(model, guide, (x[:1], y[:1]), masks)
            parts = [
                _ForcedRuns(program, mask, (x[rows], y[rows]), imputations, _seed(seeds)).gains()
                for rows in row_chunks(len(x), chunk)
            ]
        gains.append(torch.cat([mean for mean, _ in parts]))
        errors.append(torch.cat([error for _, error in parts]))
    bootstrapped = result.row_weights == DIRICHLET
    return FeatureGains(torch.stack(gains), names, torch.stack(errors), bootstrapped)


class _ForcedRuns:
    """A program on a chunk of rows, run with forced masks on the same random numbers.

    What is drawn before the mask is drawn from one seed and what is drawn after it from another:
    of a mask that is given nothing is drawn, and the numbers that follow must be the same.
    """

    def __init__(
        self,
        program: FittedProgram,
        mask: MaskSite,
        args: tuple[Tensor, Tensor],
        imputations: int,
        seed: int,
    ) -> None:
        self._program, self._args, self._imputations = program, args, imputations
        self._mask, self._seed = mask, seed

    def gains(self) -> tuple[Tensor, Tensor]:
        """The means over draws and their standard errors, each `(B, G)`."""
        drawn, likelihood = self._run(None)
        keeps = torch.cat(drawn) == 1
        if not bool((keeps | (torch.cat(drawn) == 0)).all()):
            raise ValueError(
                f"gains are of masks of 0 and 1; draws of {self._mask.name!r} have other values"
            )
        means, errors = [], []
        for g in range(self._mask.entries):
            change = likelihood - self._run([_flipped(masks, g) for masks in drawn])[1]
            each = torch.where(keeps[..., g], change, -change)
            means.append(each.mean(0))
            spread = each.std(0) if len(each) > 1 else torch.full_like(each[0], torch.nan)
            errors.append(spread / len(each) ** 0.5)
        return torch.stack(means, -1), torch.stack(errors, -1)

    def _run(self, given: Sequence[Tensor] | None) -> tuple[list[Tensor], Tensor]:
        """The masks of each run `(l, B, G)`, drawn where none are given, and `log p̂(y | x, z)` of
        all, `(L, B)`."""
        masks: list[Tensor] = []
        likelihoods: list[Tensor] = []

        def draw(site: Site) -> Tensor | None:
            if site.name != self._mask.name:
                return None
            value: Tensor = site.distribution.sample() if given is None else given[len(masks)]
            torch.manual_seed(self._seed + 2 * len(masks) + 1)
            return value

        runs = self._program.runs(self._args, self._imputations, draw=draw)
        while True:
            torch.manual_seed(self._seed + 2 * len(masks))
            found = next(runs, None)
            if found is None:
                return masks, torch.cat(likelihoods)
            run, _ = found
            _refuse_latents_of_rows(run.sites.values())
            value = torch.as_tensor(run.sites[self._mask.name].value)
            likelihoods.append(_log_likelihood(run, self._args[1]).expand(value.shape[:2]))
            masks.append(value)


def _flipped(masks: Tensor, g: int) -> Tensor:
    other = masks.clone()
    other[..., g] = 1 - other[..., g]
    return other


def gain_table(gains: FeatureGains, fdr: float = 0.1) -> pd.DataFrame:
    r"""The features by their gain, with intervals, and those found at a false discovery rate.

    With R replicates, N rows, and a feature's gains `d_{rn}`, columns:

    - `gain`: the mean over replicates and rows, in nats a row.
    - `lower`, `upper`: the 95 % interval `gain ± √(t_{N−1}² V_N + t_{R−1}² V_R)`,

          V_N = var_n(mean_r d_{rn}) / N,    V_R = var_r(mean_n d_{rn}) / R,

      of what other rows and other seeds of the fit would change, with Student's .975-quantiles t.
      Rows and replicates are the crossed random effects of `d_{rn} = μ + a_n + b_r + e_{rn}`. The
      interval covers μ in at least 95 % of cases, whichever of the two spreads is the larger
      (Banerjee; one with Satterthwaite's degrees of freedom covered 87 % with two replicates), and
      `e` is counted in both terms, which makes it wider yet. With one replicate `V_R` is left out,
      and the interval speaks of that fit alone. Two replicates say little of their spread (t is
      12.7): expect wide intervals. Of replicates that weight their rows at random (`bootstrapped`)
      the second term is `t_{R−1}² V_R (R + 1)`: their spread is also that over other rows to fit
      on, of which the mean of R has a share that does not shrink with R.
    - `p`: of the hypothesis that the mean gain of *these* fits is at most 0, one-sided:
      `P(T ≥ gain / √V_N)`, T Student's with N − 1 degrees of freedom. Replicates share their rows,
      so gains are averaged over them first.
    - `found`: whether the feature is among those that the procedure of Benjamini and Hochberg
      rejects at the rate `fdr`: of the features found, at most that share is expected to have no
      gain. This holds for independent tests, and for such as are positively dependent.

    Assumptions: rows are independent of each other and of the fits, that is, held out; the fits
    are given; N is large enough for a mean over rows to be near normal. A feature whose interval
    covers 0 may be found where the seeds of the fit differ.

    Args:
        gains: of held-out rows.
        fdr: the rate, in (0, 1).

    Returns:
        indexed by `feature`, the largest gain first.

    Raises:
        ValueError: fewer than two rows, gains that are not finite, a rate outside (0, 1).

    Source:
        Benjamini, Hochberg. Controlling the false discovery rate. JRSS B 1995. Banerjee.
        Approximate confidence interval for linear functions of means of k populations when the
        population variances are not equal. Sankhyā 1960.

    Example:
        >>> each = torch.tensor([[0.3, 0.1], [0.2, -0.2], [0.4, 0.1], [0.3, -0.1]])
        >>> gain_table(FeatureGains(each[None].double(), ("age", "noise"))).round(3)
                  gain  lower  upper      p  found
        feature
        age      0.300  0.170  0.430  0.003   True
        noise   -0.025 -0.264  0.214  0.620  False
    """
    rate = fraction("fdr", fdr)
    values = gains.gains.detach().double().cpu().numpy()
    replicates, rows, _ = values.shape
    if rows < 2:
        raise ValueError(f"a spread over rows needs two rows or more; there are {rows}")
    if not np.isfinite(values).all():
        raise ValueError("gains must be finite; they have NaN or infinite values")
    by_row = values.mean(0)
    mean, of_rows = by_row.mean(0), by_row.var(0, ddof=1) / rows
    squared = t.ppf(0.975, rows - 1) ** 2 * of_rows
    if replicates > 1:
        of_fits = mean_error(values.mean(1), gains.bootstrapped)
        squared = squared + (t.ppf(0.975, replicates - 1) * of_fits) ** 2
    half = np.sqrt(squared)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A feature that changes nothing has 0/0.
        score = np.where((mean == 0) & (of_rows == 0), 0.0, mean / np.sqrt(of_rows))
    p = t.sf(score, rows - 1)
    table = pd.DataFrame(
        {
            "gain": mean,
            "lower": mean - half,
            "upper": mean + half,
            "p": p,
            "found": false_discovery_control(p) <= rate,
        },
        index=pd.Index(gains.entry_names, name="feature"),
    )
    return table.sort_values("gain", ascending=False, kind="stable")


def row_gains(gains: FeatureGains, row: int) -> pd.DataFrame:
    """What keeping each feature is worth for the prediction of one row.

    The gain is of the row's own y: it says whether the feature helped to predict what was observed,
    or, of a black box's probabilities, what the model says. One row has no interval over rows.

    Args:
        gains: of :func:`feature_gains`.
        row: its place among the rows that were judged, from 0.

    Returns:
        indexed by `feature`, the largest gain first, in nats: `gain`, the mean over replicates;
        `error`, its standard error by the draws of masks and imputations (more `masks` lessen it;
        NaN where it is not known); `spread`, the standard deviation of the gain over replicates,
        NaN with one.

    Raises:
        ValueError: no such row.

    Example:
        >>> each = torch.tensor([[[0.3, 0.1], [0.2, -0.2]], [[0.5, 0.1], [0.4, 0.0]]]).double()
        >>> found = FeatureGains(each, ("age", "noise"), 0.1 * torch.ones(2, 2, 2))
        >>> row_gains(found, 0).round(3)
                 gain  error  spread
        feature
        age       0.4  0.071   0.141
        noise     0.1  0.071   0.000
    """
    replicates, rows, _ = gains.gains.shape
    place = int_between("row", row, 0, rows - 1, note="the rows that were judged")
    values = gains.gains[:, place].detach().double().cpu().numpy()
    errors = np.full_like(values, np.nan)
    if gains.errors is not None:
        errors = gains.errors[:, place].detach().double().cpu().numpy()
    spread = np.full(values.shape[1], np.nan)
    if replicates > 1:
        spread = values.std(0, ddof=1)
    table = pd.DataFrame(
        {
            "gain": values.mean(0),
            "error": np.sqrt(np.square(errors).sum(0)) / replicates,
            "spread": spread,
        },
        index=pd.Index(gains.entry_names, name="feature"),
    )
    return table.sort_values("gain", ascending=False, kind="stable")


def _log_likelihood(run: Any, y: Tensor) -> Tensor:
    """`log p̂(y | x, z)`, `(L, B)`, in double precision; of probabilities `y` the expectation."""
    each = log_weights(run).double()
    likelihood = torch.logsumexp(each, -3) - np.log(each.shape[-3])
    if likelihood.dim() > 2:
        share = y.mT[:, None].to(likelihood)
        likelihood = torch.where(share > 0.0, share * likelihood, 0.0).sum(0)
    bad = ~likelihood.isfinite()
    if bool(bad.any()):
        raise FloatingPointError(
            f"log p(y | x̃) is NaN or infinite in {int(bad.any(0).sum())} of {len(y)} rows, so that "
            "a gain has no value there; look for a y outside the support of its distribution, or "
            "give a predictor that rules nothing out"
        )
    return likelihood


def _refuse_soft(mask: MaskSite) -> None:
    if mask.kind not in (None, "selection"):
        raise ValueError(
            f"gains are of selections, masks of 0 and 1; the site {mask.name!r} holds a "
            f"{KINDS[str(mask.kind)].label}, which is not kept or hidden"
        )


def _refuse_latents_of_rows(sites: Any) -> None:
    named = [
        site.name
        for site in sites
        if not (site.in_particles or site.observed) and any(p.dim == -1 for p in site.plates)
    ]
    if named:
        raise ValueError(
            f"the latents {named} are of single rows and outside mask_particles(): their guide has "
            "seen y, which would flatter every gain; sample them inside mask_particles()"
        )


def _seed(generator: torch.Generator) -> int:
    return int(torch.randint(LARGEST_SEED, (), generator=generator))
