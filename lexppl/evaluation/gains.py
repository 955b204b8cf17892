"""What keeping a feature is worth in nats, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.evaluation.forced_runs import ForcedRuns, Forcing
from lexppl.evaluation.prediction import log_weights
from lexppl.explanation.named_rows import entry_names as names_of
from lexppl.inference.objective.program import ParticleTrace
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.rows.row_weights import DIRICHLET
from lexppl.models.imputers.reference_rows import taking_rows, taking_rows_from


@dataclass(frozen=True, eq=False)
class FeatureGains:
    """The gains of :func:`feature_gains`.

    Args:
        gains: in nats, `(R, N, G)` in double precision: of each replicate, row and mask entry.
        entry_names: of the G mask entries.
        errors: standard errors of the gains by their draws, `(R, N, G)`, NaN of a single draw; None
            where they are not known.
        bootstrapped: whether each replicate has random weights of the rows of the fit.
        refits: of rows in folds the gains of all R fits on the same rows
            (:meth:`lexppl.evaluation.Folds.gains`), `(R, N, G)`, by whose spread intervals are
            told; None without.
        exchanged: what is lost where the feature's value is exchanged for a single imputed one,
            `(R, N, G)`, which :func:`lexppl.evaluation.gain_table` tests; None where it is not
            known, and the gains are tested themselves.
    """

    gains: Tensor
    entry_names: tuple[str, ...]
    errors: Tensor | None = None
    bootstrapped: bool = False
    refits: Tensor | None = None
    exchanged: Tensor | None = None


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
    reference: Any | None = None,
) -> FeatureGains:
    r"""What keeping each feature is worth against hiding it, row by row:

        gain_{n,g} = log p̂_{g=1}(y_n | x_n) − log p̂_{g=0}(y_n | x_n),
        p̂_{g=s}(y | x) = 1/L Σ_l 1/K Σ_k p(y | x̃_{lk}),
            z_l ~ q(z | x),   z_{l,g} = s,   x̃_{lk} ~ p(x̃ | x, z_l),

    the log-likelihood that the explainer loses where it never keeps g. A draw of z that keeps g is
    run again without it, and one that hides g is run again with it, on the same random numbers, so
    that what does not depend on g cancels. This is leave-one-covariate-out with the explainer's own
    masks in place of refits. Of a sure mask, a predictor that states the distribution of y and an
    imputer that states that of the features, the mean over rows is the mutual information
    I(y; x_g | x_S), S being what else is kept; few draws say more, by some share of 1/L.

    Whether there is a gain at all is asked of another mean, `exchanged`,

        E_{z ~ q(z|x_n)} [ log p̂(y_n | x_n, z_g = 1, z_{−g}) − log p̂(y_n | x_n, z_g = 0, z_{−g}) ],
        log p̂(y | x, z) = log 1/K Σ_k p(y | x̃_k),

    in which every draw is judged alone: what the row's own value says beyond *one* other in its
    place. Of noise it is 0 where the gain is below 0 (see below), so that it finds weak features
    sooner. It is no measure of worth: a feature that says .07 nats may lose .5 by a wrong value.

    **The rows must be held out**: on rows that a predictor has learned from, keeping anything that
    tells the rows apart pays, also a column of pure noise. Rows that chose the best epoch or a
    setting are not quite held out either. Within a fit, cross-fitting (`fit(…, folds=2)`) sees to
    that for the selector; it does not make the fit's own rows fit for this function.

    **So must be the values that stand in for hidden ones.** A predictor is surest of itself at the
    values that it has learned from, and a hidden feature in whose place such a value stands makes
    it surer, and wrong more often, than the row's own value: noise would then seem to gain (at 300
    rows .005 nats on the average, and up to .06 in a column of 66 words). Imputers that take hidden
    features from rows (:class:`~lexppl.models.MarginalImputer`,
    :class:`~lexppl.models.MixtureDataImputer`, :class:`~lexppl.models.KMeansDataImputer`) therefore
    take them from the judged rows here, or from `reference`, and never from rows of the fit.

    How to read it:

    - Of a feature of which neither y nor the mask tells anything beyond the kept ones, the mean of
      `exchanged` is 0 with K = 1, where hidden features are drawn from their distribution given
      the kept ones, as the imputed value is then as likely as the row's own. The mean gain is at
      most 0, by Jensen's inequality: what the predictor has wrongly learned of the feature averages
      out where it is hidden. Where the judged rows are the reference and the feature is independent
      of all else, the former is exact at any number of rows, over the N! orders of its values; a
      row draws its own value once in N. Other imputers, such as a constant, or the marginal
      distribution of features that depend on each other, give no such guarantee: the predictor may
      err on what they make up, and a gain then also says that hiding harms.
    - The gain may be below 0 as the predictor overfits a feature, a true one too.
    - It is conditional: a feature that repeats a kept one gains little, and one that stands in for
      a hidden one gains.
    - A mask of k entries has one more or one less for the entry that is forced; the predictor may
      have seen few of that size.
    - Of a grouping an entry is its group of columns, kept or hidden together.
    - Probabilities `y` of labels give the expectation `Σ_c y_c gain(c)`.
    - Global latents (weights with a guide) are drawn L times from their guide, one mask each: the
      gain is of the posterior predictive distribution.

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
        reference: rows `(M, *event)`, encoded like x, that no predictor has learned from, which
            hidden features are taken from where the imputer takes them from rows; x if None.

    Raises:
        ValueError: one row that would be its own reference; a reference of another shape, or where
            no imputer takes features from rows; as
            :func:`lexppl.evaluation.predictive_log_likelihood`; masks that are not selections
            (shares, strengths, attributions); a program that observes all rows together, or has
            latents of rows outside its particle plates, whose guide has seen y.
        TypeError: a reference that is no rows.
        FloatingPointError: a log-likelihood that is NaN or −∞, which has no gain.

    Source:
        Lei, G'Sell, Rinaldo, Tibshirani, Wasserman. Distribution-free predictive inference for
        regression. JASA 2018, § 6. Watson, Wright. Testing conditional independence in supervised
        learning algorithms. Machine Learning 2021.

    Example:
        >>> from lexppl.evaluation import gain_table
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
    if y is None:
        raise ValueError("a gain is one of predicting y: give the rows' y")
    forcing = Forcing(result, x, y, masks=masks, imputations=imputations, seed=seed, what="gains")
    entries = forcing.mask.entries
    names = tuple(map(str, names_of(result, entries, entry_names)))
    read = partial(_likelihood, forcing.sites.row_plates)
    programs = (*result.models, *result.guides)
    stands_in = _reference(forcing.rows.x, reference, taking_rows(programs))
    with taking_rows_from(stands_in, programs):
        shares = _shares(torch.as_tensor(forcing.rows.y))
        parts = forcing.each(
            read, lambda runs, rows: _gains(runs, entries, shares[rows]), rows_per_chunk
        )
    gains, errors, exchanged = (
        torch.stack([torch.cat([chunk[place] for chunk in chunks]) for chunks in parts])
        for place in range(3)
    )
    bootstrapped = result.row_weights == DIRICHLET
    return FeatureGains(gains, names, errors, bootstrapped, exchanged=exchanged)


def _reference(x: Tensor, given: Any, imputers: Sequence[object]) -> Tensor:
    """The rows that hidden features are taken from, where imputers take them from rows."""
    if given is None:
        if imputers and len(x) == 1:
            raise ValueError(
                "hidden features are taken from the judged rows, and one row would be its own "
                "reference: give reference=, other rows that no predictor has learned from"
            )
        return x
    if not imputers:
        raise ValueError(
            "reference= is of imputers that take hidden features from rows, such as "
            "MarginalImputer, and the programs have none: leave it out"
        )
    try:
        rows = torch.as_tensor(given, dtype=x.dtype, device=x.device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"reference must be rows, a tensor or an array; it is a {type(given).__name__}"
        ) from error
    if rows.shape[1:] != x.shape[1:] or not len(rows):
        raise ValueError(
            f"reference must have rows of shape {tuple(x.shape[1:])}, as x; it has shape "
            f"{tuple(rows.shape)}"
        )
    return rows


def _gains(runs: ForcedRuns, entries: int, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gains, their standard errors by the draws, and what is lost by single draws, each
    `(B, G)`, of labels of the given shares, `(B, C)`."""
    drawn, likelihood = runs.drawn()
    keeps = torch.cat(drawn)[..., None] == 1
    each: list[tuple[Tensor, Tensor, Tensor]] = []
    for g in range(entries):
        other = runs.given([_flipped(masks, g) for masks in drawn])
        kept = torch.where(keeps[..., g, :], likelihood, other)
        hidden = torch.where(keeps[..., g, :], other, likelihood)
        with_it, without = kept.logsumexp(0), hidden.logsumexp(0)
        # By the delta method: log of a mean has the relative error of the mean.
        draws = (shares * ((kept - with_it).exp() - (hidden - without).exp())).sum(-1) * len(kept)
        spread = draws.std(0) if len(draws) > 1 else torch.full_like(draws[0], torch.nan)
        gain = (shares * (with_it - without)).sum(-1)
        alone = (shares * (kept - hidden)).sum(-1).mean(0)
        each.append((gain, spread / len(draws) ** 0.5, alone))
    gains, errors, exchanged = (torch.stack(values, -1) for values in zip(*each, strict=True))
    return gains, errors, exchanged


def _flipped(masks: Tensor, g: int) -> Tensor:
    other = masks.clone()
    other[..., g] = 1 - other[..., g]
    return other


def _likelihood(row_plates: frozenset[str], run: ParticleTrace, draws: int) -> Tensor:
    """`log p̂(y | x, z)` of a run, `(l, B, C)`: of the row's own y, C = 1, or of each label that has
    a probability there, else 0."""
    _refuse_latents_of_rows(run.sites.values(), row_plates)
    y = run.arguments[1]
    each = log_weights(run).double()
    likelihood = torch.logsumexp(each, -3) - np.log(each.shape[-3])
    likelihood = likelihood.movedim(0, -1) if likelihood.dim() > 2 else likelihood[..., None]
    shares = _shares(y)
    likelihood = torch.where(shares > 0.0, likelihood, 0.0)
    bad = ~likelihood.isfinite().all(-1)
    if bool(bad.any()):
        raise FloatingPointError(
            f"log p(y | x̃) is NaN or infinite in {int(bad.any(0).sum())} of {len(y)} rows, so that "
            "a gain has no value there; look for a y outside the support of its distribution, or "
            "give a predictor that rules nothing out"
        )
    return likelihood.expand(draws, *shares.shape)


def _shares(y: Tensor) -> Tensor:
    """How much each label counts, `(B, C)`: probabilities, or 1 of the row's own y."""
    return y.double() if y.dim() == 2 else y.new_ones((len(y), 1), dtype=torch.double)


def _refuse_latents_of_rows(sites: Any, row_plates: frozenset[str]) -> None:
    # A plate of groups may have the rows' dimension: what tells the rows' is its name.
    named = [
        site.name
        for site in sites
        if not (site.in_particles or site.observed) and not row_plates.isdisjoint(site.plate_names)
    ]
    if named:
        raise ValueError(
            f"the latents {named} are of single rows and outside mask_particles(): their guide has "
            "seen y, which would flatter every gain; sample them inside mask_particles()"
        )
