"""One vectorised run of a model and its guide, sorted into the terms of an objective."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyro.poutine.messenger import Messenger
from pyro.poutine.subsample_messenger import _Subsample
from torch import Tensor

from lexppl.distributions import uniform_masks
from lexppl.effects import (
    BY_DRAW,
    IMPUTATION_DIM,
    IMPUTATION_PLATE,
    LABEL_PLATE,
    MASK_DIM,
    MASK_PLATE,
    PENALTY,
    ParticleCounts,
)
from lexppl.inference.closed_divergences import CLOSED_KL, closed_divergences
from lexppl.inference.site import Site

Draw = Callable[["Site"], Tensor | None]
"""How an estimator draws a latent site; None leaves the draw to the site's own law."""

READ_BY_OBJECTIVE = frozenset({PENALTY, CLOSED_KL, "estimator", "is_auxiliary"})
"""The keys of a site's `infer` dictionary that the objective reads."""


class _Recorder(Messenger):
    """Record the sample sites of a run; give guided sites the guide's values, and let the
    estimator draw the others."""

    def __init__(
        self, given: Mapping[str, Tensor], draw: Draw | None, random_masks: bool = False
    ) -> None:
        super().__init__()
        self.sites: dict[str, Site] = {}
        self._given = given
        self._draw = draw
        self._random_masks = random_masks

    def _pyro_sample(self, msg: Any) -> None:
        if msg["is_observed"] or msg["value"] is not None or isinstance(msg["fn"], _Subsample):
            return
        name = msg["name"]
        if name in self._given:
            msg["value"], msg["done"] = self._given[name], True
            return
        site = _site(msg)
        if self._random_masks and site.is_mask:
            msg["fn"] = site.law = uniform_masks(site.law)
        drawn = self._draw(site) if self._draw is not None else None
        if drawn is not None:
            msg["value"], msg["done"] = drawn, True

    def _pyro_post_sample(self, msg: Any) -> None:
        if isinstance(msg["fn"], _Subsample):
            return
        name = msg["name"]
        if name in self.sites:
            raise ValueError(
                f"the program has two sample sites named {name!r}; give each its own name"
            )
        self.sites[name] = _site(msg, guided=name in self._given)


def _site(msg: Any, guided: bool = False) -> Site:
    return Site(
        name=msg["name"],
        law=msg["fn"],
        value=msg["value"],
        observed=msg["is_observed"],
        plates=tuple(msg["cond_indep_stack"]),
        scale=msg["scale"],
        mask=msg["mask"],
        infer=msg["infer"] or {},
        guided=guided,
    )


@dataclass
class Run:
    """The terms of one run, by their place in the objective.

    Dimensions, from the right: rows `B`, masks `M` (all of the run's), imputations `K`, and to
    the left of them the labels and any plate that encloses the particle plates.
    """

    log_weight: Tensor | None
    """`(…, K, M, B)`: `Σ log p − Σ log q` of the observed and guided sites within the particle
    plates; None where the program has no observed site there."""
    scale: float | Tensor
    """What multiplies a row's bound, outside its log: `N/B`, times a label's probability."""
    row_scale: float | Tensor
    """The scale without the labels: what multiplies a row's penalty and entropy."""
    outside: Tensor | float
    """Sum of the scaled terms outside the particle plates: global latents, plain observations."""
    penalties: list[Tensor] = field(default_factory=list)
    """Penalties by particle, `(K or 1, M or 1, B)`, or `(B,)` of the law alone; unscaled."""
    drawn: list[Site] = field(default_factory=list)
    """Latent sites within the particle plates, with the law they were drawn from."""
    sites: dict[str, Site] = field(default_factory=dict)
    """All sites of the model's run, by name."""
    arguments: tuple[Any, ...] = ()
    """What model and guide were called with."""

    @property
    def mask_sites(self) -> list[Site]:
        return [site for site in self.drawn if site.is_mask]


class Program:
    """A model with an optional guide and its arguments, ready to be run with any particle counts.

    Sites that the guide does not cover are proposed from the model itself and cancel from the
    weights.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        guide: Callable[..., Any] | None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._model = model
        self._guide = guide
        self._args = args
        self._kwargs = dict(kwargs or {})

    def run(
        self,
        masks: int = 1,
        imputations: int = 1,
        draw: Draw | None = None,
        random_masks: bool = False,
        unweighted: Collection[str] = (),
    ) -> Run:
        """Run guide and model once with `masks × imputations` particles a row.

        Args:
            masks: size of the mask plate.
            imputations: size of the imputation plate.
            draw: gives the value of a latent site, or None to draw it from its law.
            random_masks: draw masks from the uniform member of their law's family instead.
            unweighted: guided sites whose `log p − log q` is left out of the weights.

        Raises:
            ValueError: the program is not one that the objective can read; the message names the
                site.
        """
        counts = ParticleCounts(masks, imputations)
        guided: dict[str, Site] = {}
        if self._guide is not None:
            recorder = _Recorder({}, draw, random_masks)
            with counts, recorder:
                self._guide(*self._args, **self._kwargs)
            guided = recorder.sites
        values = {name: s.value for name, s in guided.items() if s.value is not None}
        recorder = _Recorder(values, draw, random_masks)
        with counts, recorder:
            self._model(*self._args, **self._kwargs)
        run = _sorted(recorder.sites, guided, unweighted)
        run.arguments = self._args
        return run


def _sorted(
    sites: dict[str, Site], guided: dict[str, Site], unweighted: Collection[str] = ()
) -> Run:
    """Put each site's terms in their place."""
    for name, site in guided.items():
        if name not in sites and not site.infer.get("is_auxiliary", False):
            raise ValueError(
                f"the guide samples {name!r}, which the model does not; the model's latent sites "
                f"are {[n for n, s in sites.items() if not s.observed or s.guided]}"
            )
    for site in (*sites.values(), *guided.values()):
        _check(site)
    closed = closed_divergences(sites, guided)
    weights: list[Tensor] = []
    outside: Tensor | float = 0.0
    penalties: list[Tensor] = []
    drawn: list[Site] = []
    row_scale: float | Tensor = 1.0
    label_scale: float | Tensor | None = None
    scales: dict[str, float] = {}
    for site in sites.values():
        if site.infer.get("_deterministic", False):
            continue
        if not site.in_particles:
            if not (site.is_penalty or site.observed or site.guided):
                _refuse_unguided(site)
            if site.name not in closed:
                outside = outside + (site.scale * site.log_prob()).sum()
            continue
        if LABEL_PLATE in site.plate_names:
            label_scale = site.scale
        else:
            row_scale = site.scale
            if isinstance(site.scale, int | float):
                scales[site.name] = float(site.scale)
        if site.is_penalty:
            cost = -site.log_prob()
            of_law = cost.dim() == -MASK_DIM and not site.infer.get(BY_DRAW, True)
            penalties.append(cost.select(MASK_DIM, 0) if of_law else cost)
        elif site.observed or (site.guided and site.name not in unweighted):
            weights.append(site.log_prob())
        if not (site.observed or site.guided):
            drawn.append(site)
    for site in guided.values():
        if site.in_particles:
            if site.name not in unweighted:
                weights.append(-site.log_prob())
            drawn.append(site)
        else:
            _refuse_unreparameterised(site)
            outside = outside - closed.get(site.name, (site.scale * site.log_prob()).sum())
    if len(set(scales.values())) > 1:
        raise ValueError(
            "sites within the particle plates must share one scale, which stands outside the "
            f"log; they have {scales}"
        )
    return Run(
        log_weight=sum(weights[1:], weights[0]) if weights else None,
        scale=row_scale if label_scale is None else label_scale,
        row_scale=row_scale,
        outside=outside,
        penalties=penalties,
        drawn=drawn,
        sites=sites,
    )


def _check(site: Site) -> None:
    for plate in site.plates:
        if plate.name == MASK_PLATE and plate.dim != MASK_DIM:
            raise ValueError(f"plate {MASK_PLATE!r} must be at dim {MASK_DIM}; it is {plate.dim}")
        if plate.name == IMPUTATION_PLATE and plate.dim != IMPUTATION_DIM:
            raise ValueError(
                f"plate {IMPUTATION_PLATE!r} must be at dim {IMPUTATION_DIM}; it is {plate.dim}"
            )
    if site.in_imputations and not site.in_particles:
        raise ValueError(
            f"site {site.name!r} is inside imputation_particles() but outside mask_particles(); "
            "enter mask_particles() first"
        )
    if site.is_mask and not any(plate.dim == -1 for plate in site.plates):
        raise ValueError(
            f"site {site.name!r} is inside mask_particles() but in no plate over rows at dim -1; "
            "a latent shared by all rows is sampled outside the particle plates"
        )
    unknown = [key for key in site.infer if key not in READ_BY_OBJECTIVE and key[0] != "_"]
    if unknown:
        raise ValueError(
            f"site {site.name!r} has infer options {unknown} that this objective does not read; "
            "it reads 'estimator' and, for global latents of a guide, 'closed_kl'"
        )


def _refuse_unguided(site: Site) -> None:
    raise ValueError(
        f"latent site {site.name!r} is outside mask_particles() and no guide covers it; add it to "
        "the guide, or sample it inside mask_particles()"
    )


def _refuse_unreparameterised(site: Site) -> None:
    if not site.law.has_rsample and site.log_prob().requires_grad:
        raise ValueError(
            f"guide site {site.name!r} is outside the particle plates and its law "
            f"{type(site.law).__name__} is not reparameterised; its gradient would be lost"
        )


def row_marginals(site: Site) -> Tensor:
    """Selection probabilities `E[z|x]` of a mask site's law, `(B, G)`: the same for every particle.

    Raises:
        ValueError: the law states no mean.
    """
    try:
        mean: Tensor = site.law.mean
    except NotImplementedError as error:
        raise ValueError(
            f"the law {type(site.law).__name__} of site {site.name!r} states no mean"
        ) from error
    return mean.select(-3, 0) if mean.dim() > 2 else mean


def without_particles(scale: float | Tensor, dropped: int) -> float | Tensor:
    """A scale of shape `(…, 1, 1, B)` with `dropped` of its two particle dimensions removed."""
    if not isinstance(scale, Tensor) or scale.dim() < 2:
        return scale
    for _ in range(min(dropped, scale.dim() - 1)):
        scale = scale.squeeze(-2)
    return scale


def no_gradient(value: Tensor) -> Tensor:
    """`value − stop(value)`: zero, with the gradient of `value`."""
    return value - value.detach()


def particle_mean(value: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Mean over particle dimensions that the value has."""
    present = [d for d in dims if value.dim() >= -d]
    return value.mean(present, keepdim=True) if present else value


__all__ = [
    "Draw",
    "Program",
    "Run",
    "Site",
    "no_gradient",
    "particle_mean",
    "row_marginals",
    "without_particles",
]
