"""One vectorised run of a model and its guide, all particles at once."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyro
import torch
from pyro.distributions import ImproperUniform, Unit
from pyro.infer.util import is_validation_enabled
from pyro.nn import PyroModule
from pyro.poutine.messenger import Messenger
from pyro.poutine.reparam_messenger import ReparamHandler
from pyro.poutine.runtime import effectful
from pyro.poutine.subsample_messenger import _Subsample
from pyro.poutine.trace_messenger import TraceHandler
from torch import Tensor, nn

from lexppl.distributions import uniform_masks
from lexppl.effects import Answers, ParticleCounts, weights_first
from lexppl.inference.contexts import plate_errors_explained
from lexppl.inference.objective.grammar import (
    DRAW,
    ELSEWHERE,
    PARTICLE_PLATES,
    SAME_PLATES,
    match,
    refuse_separate_logs,
)
from lexppl.inference.objective.site import Site
from lexppl.threads import evaluating

Program = Callable[..., Any]


@effectful(type="plain_call")
def _is_called_plainly(program: Program) -> bool:
    return False


class PlainCalls(Answers):
    """Let programs that :func:`can_be_called_plainly` be called as torch calls a module.

    The `param` statements of each part, which every handler sees, took a sixth of a small step.
    """

    def __init__(self, programs: Iterable[Program]) -> None:
        known = {id(program): program for program in programs}
        super().__init__(plain_call=lambda msg: id(msg["args"][0]) in known)


def as_called(program: Program) -> Program:
    """A program as it is run: plainly in :class:`PlainCalls`, else by Pyro, weights drawn first."""
    if _is_called_plainly(program):
        # The class's call, and not the program's own, is what leaves the statements out.
        return partial(nn.Module.__call__, program)
    return weights_first(program)


def can_be_called_plainly(program: Program) -> bool:
    """Whether a program's parameters are torch's alone, none with a prior or a constraint."""
    if not isinstance(program, nn.Module):
        return False
    if type(program).__call__ not in (PyroModule.__call__, nn.Module.__call__):
        return False
    parts = (part for part in program.modules() if isinstance(part, PyroModule))
    return not any(part._pyro_samples or part._pyro_params for part in parts)


Draw = Callable[["Site"], Tensor | None]
"""How an estimator draws a latent site; None leaves the draw to the site's own distribution."""


class RefuseImproper(Messenger):
    """Refuse a prior that nothing can be drawn from, by the site's name."""

    def _pyro_sample(self, msg: Any) -> None:
        known = msg["is_observed"] or msg["value"] is not None
        if isinstance(msg["fn"], ImproperUniform) and not known:
            raise ValueError(
                f"the prior of {msg['name']!r} is improper: nothing can be drawn from it, and it "
                "may leave no posterior; give a proper one, such as Normal(0., 10.)"
            )


class _Recorder(RefuseImproper):
    """Record the sites of a run; give sites the guide's values, and let the estimator draw."""

    def __init__(
        self,
        values: Mapping[str, Tensor],
        subsamples: Mapping[str, Tensor],
        draw: Draw | None,
        random_masks: bool = False,
    ) -> None:
        super().__init__()
        self.sites: dict[str, Site] = {}
        self.subsamples: dict[str, Tensor] = dict(subsamples)
        self._given = values
        self._draw = draw
        self._random_masks = random_masks

    def _pyro_sample(self, msg: Any) -> None:
        name = msg["name"]
        if isinstance(msg["fn"], _Subsample):
            if msg["value"] is None and name in self.subsamples:
                msg["value"], msg["done"] = self.subsamples[name], True
            return
        known = msg["is_observed"] or msg["value"] is not None
        value = msg["value"] if known else self._given.get(name)
        if is_validation_enabled() and value is not None:
            _refuse_other_shape(Site.of(msg), value)
        if known:
            return
        if value is not None:
            msg["value"], msg["done"] = value, True
            return
        super()._pyro_sample(msg)
        site = Site.of(msg)
        if self._random_masks and site.is_mask:
            msg["fn"] = site.distribution = uniform_masks(site.distribution)
        drawn = self._draw(site) if self._draw is not None else None
        if drawn is not None:
            msg["value"], msg["done"] = drawn, True

    def _pyro_post_sample(self, msg: Any) -> None:
        name = msg["name"]
        if isinstance(msg["fn"], _Subsample):
            if len(msg["value"]) < msg["fn"].size:
                self.subsamples[name] = msg["value"]
            return
        if name in self.sites:
            raise ValueError(f"the program has two sites named {name!r}; give each its own name")
        self.sites[name] = Site.of(msg, guided=name in self._given)


@dataclass
class ParticleTrace:
    """The sites of one run of a model and its guide.

    Dimensions from the right: −1 rows `B` (or another plate), −2 masks `M`, −3 imputations `K`, and
    to the left of them labels and further plates. `unweighted` are sites left out of the weights,
    `subsamples` the rows that plates drew, `beside` what is observed without y too.
    """

    sites: dict[str, Site]
    guide_sites: dict[str, Site] = field(default_factory=dict)
    unweighted: Collection[str] = ()
    arguments: tuple[Any, ...] = ()
    subsamples: Mapping[str, Tensor] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.drawn: list[Site] = [
            site for site in self.guide_sites.values() if site.in_particles and not site.observed
        ] + [
            site
            for site in self.sites.values()
            if site.in_particles and not (site.observed or site.guided)
        ]
        """Latent sites within the particle plates in the order of their draws, each with the
        distribution it was drawn from."""

    def without(self, names: Collection[str]) -> "ParticleTrace":
        """The run without some of its sites."""
        sites = {name: site for name, site in self.sites.items() if name not in names}
        return replace(self, sites=sites)

    def weighing(self, names: Collection[str]) -> "ParticleTrace":
        """The run with weights of these alone of all that it observes."""
        others = [s.name for s, _ in self.weighted if s.observed and s.name not in names]
        return replace(self, unweighted=[*self.unweighted, *others])

    @property
    def unobserved(self) -> set[str]:
        """What `obs_mask=` leaves unobserved of values that cannot be listed: where nothing reads
        it, its density sums to one."""
        return {
            site.name
            for site in self.mask_sites
            if site.name.endswith("_unobserved")
            and f"{site.name.removesuffix('_unobserved')}_observed" in self.sites
            and not site.distribution.has_enumerate_support
        }

    @property
    def mask_sites(self) -> list[Site]:
        return [site for site in self.drawn if site.is_mask]

    @property
    def weighted(self) -> list[tuple[Site, float]]:
        """The sites of `log w = Σ log p − Σ log q` with their signs."""
        terms = [
            (site, 1.0)
            for site in self.sites.values()
            if (site.observed or site.guided)
            and site.in_particles
            and not (site.is_penalty or site.is_deterministic)
        ]
        terms += [(site, -1.0) for site in self.guide_sites.values() if site.in_particles]
        return [(site, sign) for site, sign in terms if site.name not in self.unweighted]

    @property
    def log_weight(self) -> Tensor | None:
        """Unscaled `log w` `(…, K, M, B)`; None where nothing is observed in particles."""
        weighted = self.weighted
        if not weighted:
            return None
        refuse_coupled_rows([site for site, _ in weighted])
        refuse_separate_logs([site for site, _ in weighted])
        return log_weight_of(weighted)


@contextmanager
def copied_rows(args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Copies of the arguments of a program, which is refused if it changes them in place."""
    copies = tuple(column.clone() if isinstance(column, Tensor) else column for column in args)
    yield copies
    for place, column in enumerate(copies):
        if isinstance(column, Tensor) and not column.is_inference() and column._version:
            raise ValueError(
                f"the program changes its argument {place}, of shape {tuple(column.shape)}, in "
                "place, and with it the data: write x = 2 * x in place of x *= 2"
            )


def sample_nodes(program: Program, args: tuple[Any, ...], masks: int = 1) -> dict[str, Any]:
    """The sample statements of one run of a program with so many masks, by name.

    Raises:
        ValueError: the program changes its rows in place, which would change the data; its plates
            are not those of the rows.
    """
    particles = ParticleCounts(masks, 1)
    with plate_errors_explained(), copied_rows(args) as copies, particles, RefuseImproper():
        nodes = pyro.poutine.trace(program).get_trace(*copies).nodes
    return {
        name: node
        for name, node in nodes.items()
        if node["type"] == "sample" and not isinstance(node["fn"], _Subsample)
    }


def sites_of(program: Program, args: tuple[Any, ...], masks: int = 1) -> dict[str, Site]:
    """The sites of :func:`sample_nodes`, by name."""
    return {name: Site.of(node) for name, node in sample_nodes(program, args, masks).items()}


def steady_nodes(program: Program, args: tuple[Any, ...]) -> dict[str, Any]:
    """:func:`sample_nodes` of a program whose next run has the same sites, or a refusal."""
    nodes = sample_nodes(program, args)
    if other := sorted(nodes.keys() ^ sample_nodes(program, args).keys()):
        raise ValueError(
            f"site {other[0]!r} is in one run of the program and not in the next: sample the same "
            "sites, by the same names, at each call"
        )
    return nodes


def _refuse_other_shape(site: Site, value: Tensor) -> None:
    distribution, observed = site.distribution, site.observed
    if isinstance(distribution, Unit) or site.is_deterministic:
        return
    batch, event = distribution.batch_shape, distribution.event_shape
    expected, shape = torch.Size((*batch, *event)), tuple(value.shape)
    padded = (1,) * (len(expected) - len(shape)) + shape
    fits = len(padded) == len(expected) and all(
        size == whole or (observed and size == 1)
        for size, whole in zip(padded, expected, strict=True)
    )
    if observed and fits:
        particles = [p.dim - len(event) for p in site.plates if p.name in PARTICLE_PLATES]
        fits = all(len(padded) < -d or padded[d] == 1 for d in particles)
    if not fits:
        what, mend = "is given by the guide", f"it is {DRAW} {ELSEWHERE}: {SAME_PLATES}"
        if observed:
            what, mend = "is observed", "observe one value for each entry of its plates"
        raise ValueError(
            f"site {site.name!r} {what} with shape {shape}, and in the model it has shape "
            f"{tuple(expected)}; {mend}"
        )


def refuse_coupled_rows(sites: Sequence[Site]) -> None:
    """Refuse a site whose rows have no density of their own."""
    for site in sites:
        if getattr(site.distribution, "couples_rows", False):
            raise ValueError(
                f"site {site.name!r} is a partial likelihood, of rows against others of their "
                "batch, and no row has one of its own: use LeaveOneOut() in a fit, and after it "
                "give the model its baseline hazard, result = lexppl.evaluation.with_baseline"
                "(result, x, y) of the training rows"
            )


def log_weight_of(weighted: Sequence[tuple[Site, float]]) -> Tensor:
    """Log-weight of some sites, `Σ ± log p`, unscaled."""
    terms = [site.log_prob() if sign > 0 else -site.log_prob() for site, sign in weighted]
    return sum(terms[1:], terms[0])


class ParticleProgram:
    """A model with an optional guide and its arguments, to be run with any particle counts.

    Weights with priors (`PyroSample`) are drawn before the plates; subsamples of the guide's plates
    are the model's too.
    """

    def __init__(
        self,
        model: Program,
        guide: Program | None,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.guide = model, guide
        self._modules = [part for part in (model, guide) if isinstance(part, nn.Module)]
        self.called = as_called(model)
        self._guide = None if guide is None else as_called(guide)
        self.args = args
        self._kwargs = dict(kwargs or {})

    def run(
        self,
        masks: int = 1,
        imputations: int = 1,
        draw: Draw | None = None,
        random_masks: bool = False,
        unweighted: Collection[str] = (),
        subsamples: Mapping[str, Tensor] | None = None,
    ) -> ParticleTrace:
        """Run guide and model once with `masks × imputations` particles a row."""

        def recorded(
            program: Program, called: Program, known: Mapping[str, Any]
        ) -> dict[str, Site]:
            recorder = _Recorder(known, rows, draw, random_masks)
            with ParticleCounts(masks, imputations), recorder:
                called(*self.args, **self._kwargs)
            if is_validation_enabled():
                _refuse_hidden(program, self.args, self._kwargs, recorder.sites)
            rows.update(recorder.subsamples)
            return recorder.sites

        rows = dict(subsamples or {})
        guided: dict[str, Site] = {}
        if self.guide is not None and self._guide is not None:
            by_guide = recorded(self.guide, self._guide, {})
            guided = {name: site for name, site in by_guide.items() if not site.is_deterministic}
        values = {name: s.value for name, s in guided.items() if s.value is not None}
        sites = recorded(self.model, self.called, values)
        if is_validation_enabled():
            match(sites, guided)
        return ParticleTrace(sites, guided, unweighted, self.args, rows)

    def on(self, args: tuple[Any, ...]) -> "ParticleProgram":
        """The same programs with other arguments."""
        return ParticleProgram(self.model, self.guide, args, self._kwargs)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Run the modules inside as they predict: no dropout, and no statistics moved."""
        with ExitStack() as modes:
            for module in self._modules:
                modes.enter_context(evaluating(module))
            yield


def _refuse_hidden(program: Any, args: Any, kwargs: Any, seen: Collection[str]) -> None:
    """Refuse latents hidden by a handler about a program, such as `poutine.block`."""
    handled = getattr(program, "function", program)
    whole = beneath_handlers(handled)
    if whole is handled:
        return
    recorder = _Recorder({}, {}, None)
    with ParticleCounts(1), recorder:
        as_called(whole)(*args, **kwargs)
    latents = [name for name, site in recorder.sites.items() if not site.observed]
    if hidden := [name for name in latents if name not in seen]:
        raise ValueError(
            f"site {hidden[0]!r} is hidden from the fit by a handler about the program, such as "
            "poutine.block, and nothing would be learned from its draws: do not hide it; to hold a "
            "latent fixed, use poutine.condition"
        )


def beneath_handlers(program: Any) -> Any:
    """The program that Pyro's handlers, such as `poutine.block(program)`, are about."""
    while isinstance(program, partial | ReparamHandler | TraceHandler):
        if isinstance(program, partial):
            handled = program.func if isinstance(program.func, partial) else program
            if not (handled.args and isinstance(handled.args[0], Messenger)):
                break
        program = handled.args[1] if isinstance(program, partial) else program.fn
    return program


def row_marginals(site: Site) -> Tensor | None:
    """Selection probabilities `E[z|x]` of a mask site's distribution, `(B, G)`, if it states
    any."""
    with suppress(NotImplementedError):
        return of_first_particle(site.distribution.mean)
    return None


def of_first_particle(mean: Tensor) -> Tensor:
    """The mean `(B, G)` of masks that all particles share, from `(L, B, G)` or `(B, G)`."""
    return mean.select(-3, 0) if mean.dim() > 2 else mean
