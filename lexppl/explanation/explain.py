"""From a fitted explainer to its posterior in ArviZ's layout."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pyro.distributions import Unit

from lexppl.argument_checks import int_at_least
from lexppl.arviz_compatibility import Posterior, posterior_of
from lexppl.explanation.bootstrap_means import with_bootstrap
from lexppl.explanation.drawless import needs_draws, no_draws, refuse_drawless, stated_means
from lexppl.explanation.draws import (
    RESPONSE,
    observes_jointly,
    posterior_draws,
    prior_draws,
    together,
)
from lexppl.explanation.named_rows import NamedRows, named_rows
from lexppl.explanation.posterior_arrays import PosteriorArrays
from lexppl.explanation.program_sites import ProgramSites, sites_of
from lexppl.inference.contexts import keep_parameters_local
from lexppl.inference.objective.program import ParticleProgram
from lexppl.inference.predictive import FittedProgram, drawing, row_chunks, rows_at_once
from lexppl.inference.training.result import FitResult
from lexppl.inference.training.row_weights import DIRICHLET


def explain(
    result: FitResult,
    x: Any,
    y: Any = None,
    *,
    draws: int = 100,
    imputations: int = 1,
    seed: int = 0,
    rows_per_chunk: int = 1000,
    row_names: Sequence[Any] | None = None,
    entry_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    proposals: int = 4,
) -> Posterior:
    """Draw the posterior of a fitted explainer's masks, in ArviZ's layout.

    E[z | x] needs no draws where the masks' distribution states it: with `draws=0` it is all there
    is of the masks, exact, and as fast as the selector alone. Draw what needs draws, of as many
    rows as are looked at one by one.

    Without y, masks are draws of the selector's distribution p(z | x). With y they are draws of

        p(z | x, y) ∝ p(z | x) p(y | x, z),    p(y | x, z) = E[p(y | x̃)], x̃ ~ p(x̃ | x, z),

    by importance resampling: `L = proposals · draws` masks are proposed from the fit's guide
    q(z | x, y), or else from p(z | x), with the weights

        w_l = 1/K Σ_k p(y | x̃_lk) · p(z_l | x) / q(z_l | x, y),

    and `draws` of them are resampled (:func:`systematic_resampling`). Their distribution is p(z |
    x, y) but for a bias of order 1/L; `weight_ess` says on how many masks they stand.

    Groups, with B rows, G mask entries, C classes, D = `draws`; the attribute `draws` of each says
    what its draws are:

    - `prior`: masks given x alone, p(z | x). Each latent of event shape (G,) inside
      `mask_particles()`, by its site's name (`mask` for LEX), dims (chain, draw, row, feature), as
      int8 where the distribution is discrete; `importance` (chain, draw, feature), the share of
      rows that keep the entry in that draw; `size` (chain, draw, row), the number of entries kept.
      These are what :func:`selection_table` and the plots show, with y or without.
    - `prior_predictive`: `y` (chain, draw, row), drawn given the draw's mask and imputation; where
      the response is one of labels `y_probability` (chain, row, class), the mean over draws of
      p(y = c | x̃).
    - `posterior`: every latent that all rows share (weights with priors, a global Dirichlet), by
      its site's name, dims (chain, draw, …): its event of size (G,) is `feature`, its plates are
      named as they are. With y the masks given x and y as well, p(z | x, y), with their
      `importance` and `size`; `<site>_importance` where a latent has the name itself.
    - with y: `posterior_predictive`, as `prior_predictive`, given x and y.
    - with y: `log_likelihood`: `y` (chain, draw, row), log p(y | x, θ_d) for the draw θ_d of the
      latents that rows share, masks summed out by log 1/(LK) Σ w, in nats, as `arviz.loo` and
      `arviz.compare` read it. Where there are none every draw has the log-density of the mean of
      the fits, and these give the rows' log score: of rows that the fit has not learned from a
      held-out one, of others an optimistic one. Replicates with random weights of their rows
      (`fit(row_weights="dirichlet")`) are draws of what was learned, and keep a value each.
    - `sample_stats`: E[z | x] (chain, row, feature), of the distribution where it states its mean,
      else the mean of the draws (its attribute `source` says which), as `selection_probability`,
      of soft masks `mask_mean` and of signed contributions `attribution`, by what the program says
      of its mask. With y, E[z | x, y] under the same name and `_given_y`; `log_evidence` (chain,
      row), log 1/(LK) Σ w in nats; `weight_ess` (chain, row), (Σ w)² / Σ w² over masks.
    - with y: `observed_data`: `y`. `constant_data`: `x` (row, input), where x is a table.
    - of a fit with a bootstrap E[z | x] of its fits in `sample_stats`, by the same names with
      `bootstrap_` before them and dims (bootstrap, row, feature).

    A second mask site has `<site>_importance`, `<site>_size`, `<site>_selection_probability` …, and
    a dimension `<site>_feature` where its G is another.

    The chains are the fit's replicates: :func:`selection_table` says how far they agree, that is,
    how far explanations depend on the seed of the fit. Draws within a chain are independent draws
    of one fitted model (with y, resampled ones), not a Markov chain. With a single model there is
    one chain, and no agreement. Of latents outside `mask_particles()` (which the fit's guide
    covers) each draw has its own value; such programs are drawn from one draw at a time.

    A program that observes all rows in one, such as a partial likelihood of survival times, has one
    importance weight for the masks of all rows together: they are then drawn together and at once,
    and no row has a `log_evidence` or a `log_likelihood` of its own. `weight_ess` falls with the
    rows.

    Rows are worked off in chunks, and memory does not grow with their number beyond the result.
    The same seed and the same chunks give the same bits; another `rows_per_chunk` gives other
    draws of the same distribution. Global random state is left as it is.

    Args:
        result: the fit.
        x: rows `(B, *event)`: a tensor, or an array that becomes one of the model's type.
        y: labels or responses `(B,)`, or a black box's probabilities `(B, C)`, for which masks are
            drawn from the average Σ_c p(c) p(z | x, y = c).
        draws: masks a row and replicate, D; 0 for E[z | x] alone: `mask` and what else has a draw
            dimension is then empty.
        imputations: imputations a mask, K.
        seed: of all draws.
        rows_per_chunk: most rows worked on at once; fewer are where draws or rows are large.
        row_names: B different names; 0 … B−1 if None.
        entry_names: names of the G mask entries of the program's first mask site; if None those of
            the fit, of the model's grouping, or x1 … xG.
        feature_names: names of the columns of x, where it is a table; if None those of the fit, of
            the entries where there is one for each column, or x1 … xD.
        proposals: masks proposed for each draw, where y is given.

    Returns:
        `arviz.InferenceData` with ArviZ 0.2x, `xarray.DataTree` with ArviZ 1.x.

    Raises:
        ValueError, TypeError: rows unlike those of the fit, names of another number, counts below
            1, a program without masks; no draws where y is given, or where the masks' distribution
            states no mean, or depends on other latents; before any work.
        FloatingPointError: importance weights that are NaN.

    Example:
        >>> from lexppl.inference import fit
        >>> from lexppl.models import (LEX, MLP, CategoricalLikelihood, GaussianImputer,
        ...     KSubsetSelector, Predictor)
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> model = LEX(KSubsetSelector(MLP(3, 3, (8,), seed=0), k=1), GaussianImputer(),
        ...     Predictor(MLP(3, 2, (8,), seed=1), CategoricalLikelihood()))
        >>> result = fit(model, (x, y), epochs=3, progress=False)
        >>> posterior = explain(result, x, draws=50, entry_names=["age", "height", "weight"])
        >>> posterior["prior"]["mask"].dims
        ('chain', 'draw', 'row', 'feature')
        >>> given_y = explain(result, x, y, draws=50)
        >>> given_y["log_likelihood"]["y"].shape
        (1, 50, 200)
        >>> exact = explain(result, x, draws=0)["sample_stats"]["selection_probability"]
        >>> bool((exact == posterior["sample_stats"]["selection_probability"]).all())
        True
    """
    counts = {
        "draws": draws,
        "imputations": imputations,
        "rows_per_chunk": rows_per_chunk,
        "proposals": proposals,
    }
    _check_counts(counts, seed)
    rows = named_rows(result, x, y, row_names)
    for module in (*result.models, *result.guides):
        if isinstance(module, torch.nn.Module):
            keep_parameters_local(module)
    with drawing(seed, rows.x.device):
        sites = sites_of(result.model, rows.x[:1])
    rows.check_response(sites.response)
    if draws == 0:
        refuse_drawless(sites, rows.y)
    if feature_names is None and rows.x.dim() == 2:
        feature_names = result.feature_names
    with drawing(seed, rows.x.device):
        joint = rows.y is not None and _observed_jointly(result, rows)
    arrays = PosteriorArrays(result, rows, sites, draws, entry_names, feature_names, joint=joint)
    plan = _Plan(sites, draws, imputations, proposals * draws, rows_per_chunk, joint)
    for chain, (model, guide) in enumerate(zip(result.models, result.guides, strict=True)):
        device = rows.x.device
        with drawing(_chain_seed(seed, chain), device):
            few = rows.arguments(slice(0, plan.rows_at_once(rows, False)))
            program = FittedProgram(
                model,
                guide,
                few,
                draws,
                outer=sites.has_outer_latents,
                plates=sites.row_plates,
            )
            arrays.write_shared(chain, program.shared([site.name for site in sites.shared]))
            plan.draw(program, rows, arrays, chain, given_y=False)
        if rows.y is not None:
            with drawing(_chain_seed(seed, chain, 1), device):
                plan.draw(program.proposing(), rows, arrays, chain, given_y=True)
    attrs = _attributes(result, seed)
    own = _meanings(rows, draws, plan.proposed)
    groups = arrays.groups(attrs, own, are_draws=bool(sites.shared) or _weighted(result))
    if result.bootstrap is not None:
        others = explain(
            result.bootstrap,
            x,
            draws=draws if needs_draws(sites, None) else 0,
            imputations=imputations,
            seed=seed,
            rows_per_chunk=rows_per_chunk,
            row_names=row_names,
            entry_names=entry_names,
        )
        groups["sample_stats"] = with_bootstrap(groups["sample_stats"], others)
    return posterior_of(groups, attrs)


@dataclass(frozen=True)
class _Plan:
    """How much is drawn of each row."""

    sites: ProgramSites
    draws: int
    imputations: int
    proposed: int
    most_rows: int
    joint: bool

    def rows_at_once(self, rows: NamedRows, given_y: bool) -> int:
        """B of a chunk."""
        if given_y and self.joint:
            return len(rows)
        masks = self.proposed if given_y else 1 if self.sites.has_outer_latents else self.draws
        particles = max(1, masks * self.imputations)
        return rows_at_once(rows.x, particles, self.most_rows, self.sites.widest)

    def draw(
        self,
        program: FittedProgram,
        rows: NamedRows,
        arrays: PosteriorArrays,
        chain: int,
        given_y: bool,
    ) -> None:
        """Draw a chain's masks of all rows, chunk by chunk."""
        names = [site.name for site in self.sites.masks]
        for chunk in row_chunks(len(rows), self.rows_at_once(rows, given_y)):
            x, y = rows.arguments(chunk)
            if given_y and y is not None:
                drawn = together(
                    [
                        posterior_draws(run, names, y, self.proposed, self.imputations, count)
                        for run, count in program.runs(
                            (x, y), self.imputations, masks=self.proposed
                        )
                    ]
                )
            elif self.draws == 0:
                drawn = no_draws(stated_means(program, (x, None), names))
            else:
                runs = program.runs((x, None), self.imputations)
                drawn = together([prior_draws(run, names, self.imputations) for run, _ in runs])
            arrays.write(chain, chunk, drawn, given_y)


def _check_counts(counts: dict[str, int], seed: int) -> None:
    for name, count in counts.items():
        int_at_least(name, count, 0 if name == "draws" else 1)
    int_at_least("seed", seed, 0)


def _observed_jointly(result: FitResult, rows: NamedRows) -> bool:
    """Whether the program observes all rows in one.

    Raises:
        ValueError: it does not observe y inside its particle plates.
    """
    few = rows.arguments(slice(0, 2))
    run = ParticleProgram(result.models[0], result.guides[0], few).run()
    observed = [site for site, _ in run.weighted if site.observed]
    if not any(site.name == RESPONSE or isinstance(site.distribution, Unit) for site in observed):
        raise ValueError(
            "y is given, and the program has no site 'y' inside mask_particles() to observe it, "
            f"nor a pyro.factor; it observes {[site.name for site in observed]}"
        )
    return observes_jointly(run)


def _weighted(result: FitResult) -> bool:
    """Whether the fits have random weights of their rows, and so are draws of what they learned."""
    return result.row_weights == DIRICHLET and len(result.models) > 1


def _chain_seed(seed: int, *place: int) -> int:
    """Seeds of independent streams for the chains."""
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def _meanings(rows: NamedRows, draws: int, proposed: int) -> dict[str, dict[str, str]]:
    """What the draws of each group are."""
    given_x = "independent draws of the masks given x alone, p(z | x)"
    if draws == 0:
        given_x = "none: the means of p(z | x) are those that each fitted model states"
    meanings = {"prior": given_x, "prior_predictive": "responses given those masks, p(y | x)"}
    shared = "of latents that all rows share, draws of the guide or the sampler"
    meanings["posterior"] = shared
    if rows.y is not None:
        meanings["posterior"] = (
            f"draws of the masks given x and y, p(z | x, y): {draws} resampled by importance from "
            f"{proposed} proposals a row; {shared}"
        )
        meanings["posterior_predictive"] = "responses given those masks, p(y' | x, y)"
    return {group: {"draws": meaning} for group, meaning in meanings.items()}


def _attributes(result: FitResult, seed: int) -> dict[str, Any]:
    return {
        "inference_library": "lexppl",
        "inference_library_version": _version(),
        "objective": "unknown" if result.objective is None else result.objective.summary,
        "seed": seed,
        "fit_seed": result.seed,
        "row_weights": result.row_weights or "none",
        "chains": "replicates of the fit, one chain each",
    }


def _version() -> str:
    try:
        return importlib.metadata.version("lexppl")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
