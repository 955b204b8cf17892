"""From a fitted explainer to its posterior in ArviZ's layout."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import partial
from typing import Any

from lexppl.arviz_compatibility import Posterior
from lexppl.explanation.explained_rows import explained_rows
from lexppl.explanation.explanation import explanation_of
from lexppl.explanation.row_plan import Explaining
from lexppl.inference.training.result import FitResult, with_penalty
from lexppl.threads import ONE_THREAD


def explain(
    program: Any,
    x: Any,
    y: Any = None,
    *,
    guide: Any = None,
    samples: Mapping[str, Any] | None = None,
    draws: int | None = None,
    imputations: int = 1,
    seed: int = 0,
    rows_per_chunk: int = 1000,
    row_names: Sequence[Any] | None = None,
    entry_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    proposals: float | None = None,
    held_out: bool = False,
    penalty: float | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
) -> Posterior:
    """Draw the posterior of an explainer's masks and of what all rows share, in ArviZ's layout.

    What explains is a fit; or a program, with its `guide`; or a program and `samples` of its
    latents that all rows share, by any sampler: `explain(model, x, samples=mcmc.get_samples())`.

    E[z | x] needs no draws where the masks' distribution states it: with `draws=0` it is all there
    is of the masks, exact, and as fast as the selector alone. Draw what needs draws, of as many
    rows as are looked at one by one.

    Without y, masks are draws of the selector's distribution p(z | x). With y they are draws of

        p(z | x, y) ∝ p(z | x) p(y | x, z),    p(y | x, z) = E[p(y | x̃)], x̃ ~ p(x̃ | x, z),

    by importance resampling: L masks are proposed from the guide q(z | x, y), or else from
    p(z | x), with the weights

        w_l = 1/K Σ_k p(y | x̃_lk) · p(z_l | x) / q(z_l | x, y),

    and `draws` of them are resampled (:func:`systematic_resampling`). Their distribution is p(z |
    x, y) but for a bias of order 1/L; `weight_ess` says on how many masks they stand, and
    `weight_pareto_k` whether the weights can be trusted: below .7. With `proposals=math.inf` all
    masks are listed in their place, where there are few and x̃ is a function of the mask, and
    masks, E[z | x, y] and log p(y | x) are exact.

    Groups, with B rows, G mask entries, C classes, D = `draws`; the attribute `draws` of each says
    what its draws are:

    - `predictions`, for which no y is looked at: masks given x alone, p(z | x). Each latent of
      event shape (G,) inside `mask_particles()`, by its site's name (`mask` for LEX), dims (chain,
      draw, row, feature), as int8 where the distribution is discrete; `importance` (chain, draw,
      feature), the share of rows that keep the entry in that draw; `size` (chain, draw, row), the
      number of entries kept. These are what :func:`selection_table` and the plots show, with y or
      without; of a program whose guide draws masks given x alone, they show the guide's,
      `<site>_by_guide`, which stand beside them. `y` (chain, draw, row), drawn given the draw's
      mask and imputation; where the response is one of labels `y_probability` (chain, row, class),
      the mean over draws of p(y = c | x̃). `<site>_mean` (chain, draw, row, feature), see below.
    - `posterior`: every latent that all rows share (weights with priors, a global Dirichlet), by
      its site's name, dims (chain, draw, …): `dims` names those of its event, of which one that
      shares out a unit among the G entries is `feature`; its plates are named as they are. Beside
      them what follows from each draw θ_d, E[z | x, θ_d], where the masks' distribution states it:
      in `predictions` `<site>_mean` (chain, draw, row, feature), if that is no more than eight
      million numbers, and here its mean over rows,
      `<site>_mean_over_rows` (chain, draw, feature). Their spread over draws is how sure θ leaves
      one of a selection, without the noise of drawn masks: `az.summary(posterior,
      var_names="mask_mean_over_rows")`. With y the `importance` of the masks given x and y as well
      (`<site>_importance` where a latent has the name itself); and, of a program without such
      latents, those masks and their `size`. Of one with such latents these are in
      `posterior_of_rows`: `az.summary(posterior)` and `az.plot_trace` have no array by row to read.
    - with y: `posterior_predictive`: `y` and `y_probability` given x and y, each draw a new
      response.
    - `prior`: draws from the prior of the latents that all rows share, whose variables are among
      those of `posterior`; with y the `importance` of masks given x and them, and
      `prior_predictive`: responses given x and them, for `az.plot_ppc(posterior, group="prior")`.
      Of a program without such latents p(z | x) is the prior of the masks: `prior` and
      `prior_predictive` are then, with y, the draws of `predictions`. There is none of parameters
      without a prior.
    - with y: `log_likelihood`: `y` (chain, draw, row), log p(y | x, θ_d) for the draw θ_d of the
      latents that rows share, masks summed out by log 1/(LK) Σ w, in nats, as `arviz.loo` and
      `arviz.compare` read it. Where there are none every draw has the log-density of the mean of
      the fits, and these give the rows' log score: of rows that the fit has not learned from a
      held-out one, of others an optimistic one. Replicates with random weights of their rows
      (`fit(row_weights="dirichlet")`) are draws of what was learned, and keep a value each. Of rows
      that the draws have not learned from there is nothing to leave out: say `held_out=True`, for
      the log-density of the mean over all draws.
    - `sample_stats`: E[z | x] (chain, row, feature), of the distribution where it states its mean,
      else the mean of the draws (its attribute `source` says which), as `selection_probability`, of
      soft masks `mask_mean` and of signed contributions `attribution`, by what the program says of
      its mask. With y, E[z | x, y] under the same name and `_given_y`; `log_evidence` (chain, row),
      log 1/(LK) Σ w in nats; `weight_ess` (chain, row), (Σ w)² / Σ w² over masks, and
      `weight_pareto_k` (chain, row), k̂ of :func:`~lexppl.explanation.masks.draws.pareto_k` (of
      the draws' own proposals their mean and median). Of a sampler its own, such as `diverging`.
    - with y: `observed_data`: `y`. `constant_data`, without y `predictions_constant_data`: `x`
      (row, input), where x is a table; of images `x` (row, channel, height, width), and
      `feature_map` (height, width), the place of each pixel's entry along `feature`:
      `means.isel(feature=feature_map)` is a map of pixels. Where the channels of a pixel have
      entries of their own it is (channel, height, width); where the entries are not of pixels there
      is none (:func:`with_images` adds it).

    A second mask site has `<site>_importance`, `<site>_size`, `<site>_selection_probability` …, and
    a dimension `<site>_feature` where its G is another.

    The chains are those of the sampler where the latents that rows share were sampled, else the
    fit's replicates: :func:`selection_table` says how far they agree, that is, how far explanations
    depend on the seed of the fit. Draws of masks are independent draws of one fitted model (with
    y, resampled ones), not a Markov chain. Of latents outside `mask_particles()` each draw has its
    own value, of a sampler's S draws evenly thinned ones; such programs are drawn from one draw at
    a time, with L masks each.

    A mask need not be a row's: one that `mask_particles()` has outside every plate is of all rows,
    dims (chain, draw, feature), as in Bayesian variable selection; one in another plate at dim −1
    of its entries, (chain, draw, group, feature) by the plate's name. Which group's mask a row
    depends on is seen by exchanging the groups' masks, so that groups are of x. Such masks stand in
    `posterior` beside what else is shared, all rows are drawn at once, and `log_likelihood` is
    log p(y | x, θ_d, z_d) for the draw's. Up to 4,096 masks are summed out, exactly: of all rows,
    of a group given these, of a row given both. Of more, 4,096 are proposed from their prior, and
    `weight_pareto_k`, by the plate's entries, says whether that will do. y may be one event of all
    rows, `(B,)`, with slopes integrated out.

    A program that observes all rows in one beside masks of rows or groups has one weight for all of
    them together: they are then drawn together and at once, and no row has a `log_evidence` or a
    `log_likelihood` of its own. `weight_ess` falls with the rows.

    Rows are worked off in chunks, and memory does not grow with their number beyond the result: a
    chunk holds tensors of at most 2^24 numbers, with small networks about 1 GiB in all, the result
    a byte for each entry of a discrete mask and 4 bytes for each mean in float32. By default a
    group's masks take at most 512 MiB, for which fewer than 100 draws are kept of many rows of many
    entries, 10 at least: 34 of 10,000 images of 28 × 56 pixels. The means are exact all the same.
    The same seed and the same chunks give the same bits; another `rows_per_chunk` gives other
    draws of the same distribution. Global random state is left as it is.

    Args:
        program: a fit; or a Pyro program, called as `program(x, y)`.
        x: rows `(B, *event)`: a tensor, or an array that becomes one of the model's type.
        y: labels or responses `(B,)`, or a black box's probabilities `(B, C)`, for which masks are
            drawn from the average Σ_c p(c) p(z | x, y = c).
        guide: of a program, its fitted guide, called as `guide(x, y)`: of latents that all rows
            share, of masks, or of both.
        samples: draws of the latents that all rows share, by site `(S, *value)`, or by chain
            `(C, S, *value)`: what `mcmc.get_samples()`, also by chain, or Pyro's `Predictive` give.
        draws: masks a row and chain, D; S of samples if None, else 100, or as many as fit into 512
            MiB; 0 for E[z | x] alone: `mask` and what else has a draw dimension is then empty.
        imputations: imputations a mask, K.
        seed: of all draws.
        rows_per_chunk: most rows worked on at once; fewer are where draws or rows are large.
        row_names: B different names; 0 … B−1 if None.
        entry_names: names of the G mask entries of the program's first mask site; if None those of
            the fit, of the model's grouping, or x1 … xG.
        feature_names: names of the columns of x, where it is a table; if None those of the fit, of
            the entries where there is one for each column, or x1 … xD.
        proposals: masks proposed for each draw, where y is given: 4 if None, of one pool; 100 in a
            program with latents outside `mask_particles()`, whose draws have masks of their own, or
            all masks where there are no more and nothing else is random. Masks that rows share are
            listed, or 4,096 proposed.
            `math.inf` for all masks, of which there may be 4,096.
        held_out: whether the fit or the sampler has not learned from these rows.
        penalty: λ of the masks, in nats for each entry kept, of a fit or a program for a range of
            them (:class:`lexppl.models.PenaltyConditioned`); None for the λ that it has.
        dims: by latent that all rows share a name for each dimension of its value that is no plate,
            as in PyMC: `dims={"slope": ["feature"]}`, and `az.summary` has `slope[age]`.
        coords: by such a dimension, or a plate, the names of its entries; of `feature` the same as
            `entry_names`.

    Returns:
        `arviz.InferenceData` with ArviZ 0.2x, `xarray.DataTree` with ArviZ 1.x. A notebook shows in
        sentences what a table's explanation reads; `explanation.at(penalty=λ)` is the same of
        another λ.

    Raises:
        ValueError, TypeError: rows unlike those of the fit, a λ that it was not fitted for, names
            of another number, counts below 1, a program without masks; latents that no guide and no
            samples cover, samples of another name or shape; masks that cannot be listed; no draws
            where y is given, or where the masks' distribution states no mean, or depends on other
            latents; before any work.
        FloatingPointError: importance weights that are NaN.

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.models import (LEX, MLP, CategoricalLikelihood, GaussianImputer,
        ...     KSubsetSelector, Predictor)
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> model = LEX(KSubsetSelector(MLP(3, 3, (8,), seed=0), k=1), GaussianImputer(),
        ...     Predictor(MLP(3, 2, (8,), seed=1), CategoricalLikelihood()))
        >>> result = fit(model, (x, y), epochs=3, progress=False)
        >>> posterior = explain(result, x, draws=50, entry_names=["age", "height", "weight"])
        >>> posterior["predictions"]["mask"].dims
        ('chain', 'draw', 'row', 'feature')
        >>> given_y = explain(result, x, y, draws=50)
        >>> given_y["log_likelihood"]["y"].shape
        (1, 50, 200)
        >>> exact = explain(result, x, draws=0)["sample_stats"]["selection_probability"]
        >>> bool((exact == posterior["sample_stats"]["selection_probability"]).all())
        True
    """
    arguments = locals()
    how = Explaining(**{field.name: arguments[field.name] for field in fields(Explaining)})
    models = program.models if isinstance(program, FitResult) else [program]
    with ONE_THREAD, nullcontext() if penalty is None else with_penalty(models, penalty):
        found = explained_rows(program, x, y, how, row_names=row_names)
    return explanation_of(found, partial(explain, program, x, y, row_names=row_names, **vars(how)))
