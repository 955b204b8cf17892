"""The explanation: the posterior of a fit's masks."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import xarray as xr

from lexppl.arviz_compatibility import Posterior, posterior_of, tree_of
from lexppl.explanation.explained_rows import explained_rows
from lexppl.explanation.mask_sampler import ExplainOptions
from lexppl.explanation.posterior_arrays import PosteriorArrays
from lexppl.explanation.reading.masks import GIVEN_X, GIVEN_XY, RESPONSES
from lexppl.inference.batches import x_and_y
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
    entry_names: Sequence[str] | None = None,
    proposals: float | None = None,
    held_out: bool = False,
    penalty: float | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
) -> Posterior:
    """Draw the posterior of an explainer's masks and of what all rows share, in ArviZ's layout.

    Use it after `fit`, to read which features the explainer keeps, of which rows, and how sure that
    is. The result is ArviZ data, which `selection_table`, the plots and ArviZ itself read.

    Example:
        >>> import torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> result = fit(small, (x, y), epochs=3, progress=False)
        >>> given_y = explain(result, x, y, draws=50, entry_names=["age", "height", "weight"])
        >>> given_y["predictions"]["mask"].dims, given_y["log_likelihood"]["y"].shape
        (('chain', 'draw', 'row', 'feature'), (1, 50, 200))

    Args:
        program: a fit; or a Pyro program, called as `program(x, y)`.
        x: rows `(B, *event)`: a tensor, or an array that becomes one of the model's type, or of
            whole numbers where the program reads these; or a data set with x and y, or a pair
            `(x, y)`, as `fit` takes them: the same as x and y.
        y: labels or responses `(B,)`, or a black box's probabilities `(B, C)`, for which masks are
            drawn from the average Σ_c p(c) p(z | x, y = c).
        guide: of a program, its fitted guide, called as `guide(x, y)`: of latents that all rows
            share, of masks, or of both.
        samples: by site `(S, *value)`, or by chain `(C, S, *value)`, as `mcmc.get_samples()` or
            Pyro's `Predictive` give them.
        draws: masks a row and chain, D; 0 for E[z | x] alone. If None S of samples, else 100, or as
            many as fit into 512 MiB a group, 10 at least.
        imputations: imputations a mask, K.
        seed: of all draws.
        rows_per_chunk: most rows worked on at once.
        entry_names: of the G entries of the first mask site; if None those of the fit, of the
            model's grouping, or x1 … xG.
        proposals: masks proposed for each draw, given y: if None 4, of one pool; 100 in a program
            with latents outside `mask_particles()`, or all masks where there are no more; 4,096 of
            masks that rows share. `math.inf` for all masks, of which there may be 4,096; with
            random imputations give `imputations` too.
        held_out: whether the fit or the sampler has not learned from these rows.
        penalty: λ in nats for each entry kept, of a fit or a program for a range of them
            (:class:`lexppl.models.PenaltyConditioned`); None for the λ that it has.
        dims: by latent that all rows share a name for each dimension of its value that is no plate,
            as in PyMC: `dims={"slope": ["feature"]}`, and `az.summary` has `slope[age]`.
        coords: by dimension the names of its entries: of one in `dims`, or a plate; of `row` B
            different names, else 0 … B−1; of `input` those of the columns of a table x, else those
            of the fit, of the entries where there is one for each column, or x1 … xD; of `feature`
            the same as `entry_names`.

    Returns:
        `arviz.InferenceData` with ArviZ 0.2x, `xarray.DataTree` with ArviZ 1.x.
        :func:`lexppl.plots.answers` puts a table's into sentences.

    Raises:
        ValueError, TypeError: rows unlike those of the fit, a λ that it was not fitted for, names
            of another number, counts below 1, a program without masks; latents that no guide and no
            samples cover, samples of another name or shape; masks that cannot be listed; no draws
            where y is given, or where the masks' distribution states no mean, or depends on other
            latents; before any work.
        FloatingPointError: importance weights that are NaN.

    `program` is a fit; a program with its `guide`; or a program and `samples` of its latents
    that all rows share, by any sampler: `explain(model, x, samples=mcmc.get_samples())`.

    E[z | x] needs no draws where the masks' distribution states it: with `draws=0` it is exact, and
    as fast as the selector. Without y, masks are draws of p(z | x); where the program observes
    something without y too, such as x, a second response or a `pyro.factor`, "given x" is given
    that as well, here and below, and the masks are weighed by it. With y they are draws of

        p(z | x, y) ∝ p(z | x) p(y | x, z),    p(y | x, z) = E[p(y | x̃)], x̃ ~ p(x̃ | x, z),

    by importance resampling (:func:`systematic_resampling`) of L proposals from the guide
    q(z | x, y), or else from p(z | x), with the weights

        w_l = 1/K Σ_k p(y | x̃_lk) · p(z_l | x) / q(z_l | x, y),

    which has a bias of order 1/L: `weight_ess` says on how many masks it stands, and the weights
    can be trusted where `weight_pareto_k` is below .7. With `proposals=math.inf` all masks are
    listed, and masks, E[z | x, y] and log p(y | x) are exact, or where imputations are random
    within the error of K of them for each mask. A `poutine.scale` tempers what is
    learned, and not these densities.

    Groups, with B rows, G mask entries, C classes, D = `draws`; the attribute `draws` of each says
    what its draws are:

    - `predictions`, given x alone. Each latent of event shape (G,) inside `mask_particles()`, or
      coin of a row (G = 1), by its site's name (`mask` for LEX), dims (chain, draw, row, feature),
      int8 where it is discrete; values of `pyro.deterministic` there by their names;
      `importance` (chain, draw, feature), the share of rows that keep the entry; `size` (chain,
      draw, row), the number of entries kept. :func:`selection_table` and the plots show these; of a
      program whose guide draws masks given x alone, the guide's, `<site>_by_guide`, beside them.
      `y` (chain, draw, row), drawn given the draw's mask and imputation; of labels `y_probability`
      (chain, row, class), the mean over draws of p(y = c | x̃).
    - `posterior`: every latent θ that all rows share, by its site's name, dims (chain, draw, …):
      its plates by their names, the others by `dims`, or `feature` where it shares out a unit among
      the G entries. What follows from each draw θ_d, E[z | x, θ_d], where the masks' distribution
      states it: in `predictions` `<site>_mean` (chain, draw, row, feature), up to eight million
      numbers, and here its mean over rows `<site>_mean_over_rows` (chain, draw, feature), whose
      spread says how sure θ leaves one of a selection. With y the `importance` of masks given x and
      y (`<site>_importance` where a latent has the name itself); without such latents also those
      masks, their `size` and `pyro.deterministic` values, which else stand in `posterior_of_rows`.
    - with y: `posterior_predictive`: `y` and `y_probability` given x and y, each draw a new
      response.
    - `prior`: draws of θ from its prior; with y the `importance` of masks given x and them, and
      `prior_predictive`, responses given x and them. Without θ, and with y, the draws of
      `predictions`, which are then the prior. There is none of parameters without a prior.
    - with y: `log_likelihood`: `y` (chain, draw, row), log p(y | x, θ_d) in nats, masks summed out
      by log 1/(LK) Σ w, as `arviz.loo` and `arviz.compare` read it. Without θ, or with
      `held_out=True`, every draw has the log-density of the mean over all draws, so that these give
      the log score of the rows; replicates with `row_weights="dirichlet"` keep a value each.
    - `sample_stats`: E[z | x] (chain, row, feature), of the distribution where it states its mean,
      averaged over draws of other latents of the particle that it depends on, else the mean of the
      draws (attribute `source`), as `selection_probability`, of soft masks
      `mask_mean`, of signed contributions `attribution`. With y, E[z | x, y] under the same name
      and `_given_y`; `log_evidence` (chain, row), log 1/(LK) Σ w in nats; `weight_ess` (chain,
      row), (Σ w)² / Σ w² over masks; `weight_pareto_k` (chain, row), k̂ of Pareto-smoothed
      importance sampling (of the draws' own proposals their mean and median). Of a sampler its own
      statistics.
    - with y: `observed_data`: `y`. `constant_data`, without y `predictions_constant_data`: `x`
      (row, input) of a table; `x` (row, channel, height, width) of images, and `feature_map`
      (height, width), the place of each pixel's entry along `feature` (with a channel dimension
      where channels have entries of their own): `means.isel(feature=feature_map)` is a map of
      pixels.

    A second mask site has `<site>_importance`, `<site>_size`, `<site>_selection_probability` …, and
    a dimension `<site>_feature` where its G is another.

    The chains are those of the sampler, else the fit's replicates: :func:`selection_table` says how
    far they agree, that is, how far explanations depend on the seed of the fit. Draws of masks are
    independent, not a Markov chain. Of latents outside `mask_particles()` each draw has its own
    value, of a sampler's S draws evenly thinned ones, with L masks each.

    A mask outside every plate is of all rows, dims (chain, draw, feature); one in another plate at
    dim −1 of its entries, (chain, draw, group, feature); coins in a plate that is neither of rows
    nor of a mask are the entries of a mask of all rows, (chain, draw, plate), at dim −4 those of a
    mask of what else they are in. Masks that rows share stand in `posterior`, all rows are drawn at
    once, and `log_likelihood` is log p(y | x, θ_d, z_d). Up to
    4,096 masks are summed out exactly: of all rows, of a group given these, of a row given both. Of
    more, 4,096 are proposed from their prior, and `weight_pareto_k`, by the plate's entries, says
    whether that will do. Where all rows are observed as one event beside masks of rows or groups,
    or rows depend on each other's masks in one log, all have one weight together, and no row has a
    `log_evidence`; `weight_ess` falls with the rows.

    A chunk of rows holds tensors of at most 2^24 numbers, about 1 GiB with small networks; the
    result takes a byte for each entry of a discrete mask and 4 for each mean in float32. The same
    seed and chunks give the same bits; global random state is left as it is.
    """
    arrays = _explained(**locals())
    return posterior_of(arrays.groups(), arrays.attrs)


def explanation_tree(program: Any, x: Any, y: Any = None, **settings: Any) -> xr.DataTree:
    """What :func:`explain` returns, as xarray's tree, whichever ArviZ is installed."""
    arrays = _explained(program, x, y, **settings)
    return tree_of(arrays.groups(), arrays.attrs)


def prior(
    program: Any,
    x: Any,
    *,
    draws: int = 500,
    imputations: int = 1,
    seed: int = 0,
    entry_names: Sequence[str] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[Any]] | None = None,
) -> Posterior:
    """Prior and prior predictive of a program before any fit: θ ~ p(θ), z ~ p(z | x, θ),
    y ~ p(y | x, z, θ), D draws of each.

    Use it before `fit`, to see whether the program expects masks of a plausible size and responses
    like the observed ones. The result is ArviZ data, as of `explain`.

    Example:
        >>> import pyro, pyro.distributions as dist, torch
        >>> from lexppl.models import mask_particles
        >>> def program(x, y=None):
        ...     kept = pyro.sample("kept", dist.Beta(1.0, 3.0))
        ...     with pyro.plate("data", len(x), dim=-1), mask_particles():
        ...         z = pyro.sample("mask", dist.Bernoulli(kept.expand(3)).to_event(1))
        ...         pyro.sample("y", dist.Normal((z * x).sum(-1), 1.0), obs=y)
        >>> drawn = prior(program, torch.ones(2, 3), draws=100)
        >>> drawn["prior"]["mask"].shape, drawn["prior_predictive"]["y"].shape
        ((1, 100, 2, 3), (1, 100, 2))

    Args:
        program: a Pyro program, called as `program(x, None)`.
        x: rows `(B, *event)`.
        draws: D.
        imputations: K, the imputations of a mask.
        seed, entry_names, dims, coords: as in :func:`explain`.

    Returns:
        ArviZ data: `prior`, the latents θ that all rows share, the masks with their `size` and
        `importance`, and values of `pyro.deterministic`; `prior_predictive`, `y`, and of labels
        `y_probability`; `sample_stats`, E[z | x]; `constant_data`, `x`.

    Raises:
        ValueError, TypeError: a fit, whose draws are :func:`explain`'s; a latent without a prior;
            as :func:`explain`.
    """
    if isinstance(program, FitResult):
        raise TypeError("prior is of a program before a fit; explain(result, x) has a fit's draws")
    settings = {name: value for name, value in locals().items() if name not in ("program", "x")}
    arrays = _explained(program, x, None, from_prior=True, **settings)
    groups = arrays.groups()
    drawn = groups.pop(GIVEN_X)
    responses = [name for name in RESPONSES if name in drawn]
    shared = [groups.pop(name) for name in ("prior", GIVEN_XY) if name in groups]
    groups["prior"] = xr.merge([*shared, drawn.drop_vars(responses)], combine_attrs="override")
    groups["prior_predictive"] = drawn[responses]
    groups["constant_data"] = groups.pop(f"{GIVEN_X}_constant_data")
    groups["prior"].attrs["draws"] = "independent draws from the prior, and of masks given them"
    return posterior_of(groups, arrays.attrs)


def _explained(
    program: Any,
    x: Any,
    y: Any,
    *,
    penalty: float | None = None,
    **settings: Any,
) -> PosteriorArrays:
    x, y = x_and_y(x, y)
    models = program.models if isinstance(program, FitResult) else [program]
    with ONE_THREAD, nullcontext() if penalty is None else with_penalty(models, penalty):
        return explained_rows(program, x, y, ExplainOptions(**settings))
