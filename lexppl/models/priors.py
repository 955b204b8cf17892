"""Priors of weights, of the rate of inclusion, of sites."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

import pyro.distributions as dist
import torch
from pyro.distributions import TorchDistribution
from pyro.infer.util import is_validation_enabled
from pyro.nn import PyroModule, PyroSample
from torch import Tensor, nn
from torch.distributions import Distribution, Independent

from lexppl.argument_checks import finite_float, int_at_least, int_between, shaped
from lexppl.configured import Configured
from lexppl.distributions.computed_once import MadeOnce

NAMES = "Normal Laplace Cauchy Logistic LogNormal StudentT HalfNormal HalfCauchy Gamma InverseGamma"
NAMES += " Exponential Uniform Beta Dirichlet MultivariateNormal"
FAMILIES: Mapping[str, Any] = MappingProxyType(
    {name: getattr(dist, name) for name in NAMES.split()}
)
"""Pyro's classes by name."""


def arguments_of(family: str) -> tuple[str, ...]:
    """The names of the arguments that describe a distribution of a family."""
    others = {"MultivariateNormal": ("loc", "scale_tril"), "Uniform": ("low", "high")}
    return others.get(family) or tuple(FAMILIES[family].arg_constraints)


OTHERWISE = (
    "; for another, make the weight a pyro.nn.PyroSample by hand (such a program is saved by its "
    "weights alone)"
)


@dataclass(frozen=True)
class WeightPrior:
    """The prior of one tensor of weights: its family and arguments, of one number or of the
    tensor."""

    family: str
    arguments: Mapping[str, Tensor]

    @classmethod
    def of(cls, name: str, distribution: Any, shape: torch.Size) -> WeightPrior:
        """The prior that a distribution gives a weight; refusals name the weight."""
        if not isinstance(distribution, Distribution):
            what = "the class " if isinstance(distribution, type) else ""
            called = (distribution if what else type(distribution)).__name__
            raise TypeError(
                f"the prior of {name!r} must be a distribution, such as dist.Normal(0.0, 1.0); it "
                f"is {what}{called}"
            )
        base: Any = distribution
        while isinstance(base, Independent):
            base = base.base_dist
        family = type(base).__name__
        if family not in FAMILIES:
            raise TypeError(
                f"the prior of {name!r} is {family}; a prior of weights is one of "
                f"{sorted(FAMILIES)}{OTHERWISE}"
            )
        arguments = {argument: getattr(base, argument) for argument in arguments_of(family)}
        _check_arguments(name, base, arguments)
        size = torch.Size((*base.batch_shape, *base.event_shape))
        if size not in (torch.Size(()), shape):
            raise ValueError(
                f"the prior of {name!r} is a {family} of shape {tuple(size)}, and the weight has "
                f"shape {tuple(shape)}: give a distribution of one number, or of that shape"
            )
        return cls(family, {key: value.detach() for key, value in arguments.items()})

    def json(self) -> dict[str, Any]:
        """The family and its arguments as JSON has them."""
        config = {name: value.tolist() for name, value in self.arguments.items()}
        return {"distribution": self.family, "config": config}


def prior_from(description: Any) -> Distribution:
    """A distribution from what :meth:`WeightPrior.json` returned."""
    family = description.get("distribution") if isinstance(description, Mapping) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise ValueError(f"the file describes a prior {family!r}, none of {sorted(FAMILIES)}")
    config = description.get("config", {})
    if set(config) != set(arguments_of(family)):
        raise ValueError(
            f"the file has a {family} with {sorted(config)}; it has {list(arguments_of(family))}"
        )
    values = {name: torch.as_tensor(value) for name, value in config.items()}
    return FAMILIES[family](**values)


def _check_arguments(name: str, base: Distribution, arguments: Mapping[str, Tensor]) -> None:
    family = type(base).__name__
    for key, value in arguments.items():
        if value.requires_grad:
            raise ValueError(
                f"{key} of the prior of {name!r} requires a gradient, and a prior's numbers are "
                f"given: detach it{OTHERWISE}"
            )
        constraint: Any = base.arg_constraints.get(key)
        dependent = constraint is None or type(constraint).__name__.startswith("_Dependent")
        allowed = True if dependent else bool(constraint.check(value).all())
        if not (bool(value.isfinite().all()) and allowed):
            # An infinite scale or bound is how an improper prior is written.
            raise ValueError(
                f"the prior of {name!r} is a {family} with {key} {value.tolist()}; it must be "
                "finite and in the family's range"
            )


Chosen = Callable[[str, Tensor], Distribution | None]
"""The prior of a weight by its name and value, or None for one that is learned."""

Prior = Distribution | Chosen | Mapping[str, Distribution | Chosen]
"""A distribution for all weights, a function that chooses, or either by part."""

Module = TypeVar("Module", bound=nn.Module)

PARTS = ("selector", "predictor")  # The parts of an explainer with networks

_BATCH_NORMS = (nn.modules.batchnorm._BatchNorm,)
_NORMS = (*_BATCH_NORMS, nn.GroupNorm, nn.LayerNorm, nn.modules.instancenorm._InstanceNorm)


def with_prior(module: Module, prior: Prior) -> Module:
    r"""A copy of a network whose weights are latents with a prior:

    .. math:: w \sim p(w), \qquad y_n \mid x_n, w \sim p(y \mid x_n, w) \quad\text{given one } w
              \text{ for all rows.}

    Each weight that has a prior is a Pyro sample site under its own name, as
    `selector.network.layers.0.weight`, of event shape the tensor's and no batch shape; a guide or a
    sampler has its posterior, and :func:`lexppl.inference.fit` draws it before the plates (in a
    program of your own call :func:`lexppl.effects.draw_weights` first). Give the whole
    program, so that names are those of their places in it.

    What keeps its point estimate: what no part of `prior` names; parameters that are not learned
    (of a :func:`lexppl.models.frozen` predictor); and, unless they are named in full or chosen by a
    function, single numbers (a likelihood's log-scale) and the scales and shifts of layer and group
    norms.

    Args:
        module: any torch module.
        prior: a distribution of one number, which all weights have independently, or of the
            weight's shape; a function `(name, weight) -> distribution or None`; or either by part,
            as `{"selector": dist.Normal(0.0, 1.0)}` for `module.selector` and all below it: of
            several names the longest counts.

    Returns:
        the copy, of the same class made a `PyroModule`. Its priors' numbers are buffers, saved with
        it.

    Raises:
        TypeError: what is no distribution (a class, a number), or one of an unknown family.
        ValueError: an improper distribution, one of another shape; a part that there is not or that
            has no such weight; batch norm among the weights, under which a row's likelihood depends
            on the other rows; a weight that stands in two places; a constrained parameter.

    References:
        Neal (1996), "Bayesian learning for neural networks", § 1.2 and § 2.1, for priors that
        shrink with a layer's width. Blundell et al. (2015), "Weight uncertainty in neural
        networks", ICML, for their mean-field posteriors (Pyro's `AutoNormal`).

    Example:
        >>> import pyro.distributions as dist
        >>> def by_width(name, weight):
        ...     return dist.Normal(0.0, weight.shape[-1] ** -0.5 if weight.dim() > 1 else 1.0)
        >>> weight_priors(with_prior(nn.Linear(4, 1), by_width))["weight"]["config"]
        {'loc': 0.0, 'scale': 0.5}
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"with_prior takes a torch module; it is given {type(module).__name__}")
    if isinstance(module, torch.jit.ScriptModule):
        raise TypeError("a scripted module cannot be given priors: give the module it was made of")
    chosen = chosen_priors(module, prior)
    fresh = copy.deepcopy(module)
    put_priors(fresh, chosen)
    return fresh


def chosen_priors(module: nn.Module, prior: Prior) -> dict[str, WeightPrior]:
    """The prior of each weight that is to have one, by its name; errors as :func:`with_prior`."""
    parts = dict(prior) if isinstance(prior, Mapping) else {"": prior}
    if not parts:
        raise ValueError("prior names no part; leave it out, or give a distribution")
    learned = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
    for part, choice_of_part in parts.items():
        below = [name for name, _ in learned if _is_below(name, part)]
        if not below:
            tops = sorted({name.split(".")[0] for name, _ in learned})
            raise ValueError(
                f"prior names {part!r}, where there is no weight that is learned; there are some "
                f"in {tops}"
            )
        # Read once whole, so that what is no prior is refused whichever weights there are.
        if not _chooses(choice_of_part):
            WeightPrior.of(part or below[0], choice_of_part, dict(learned)[below[0]].shape)
    holders = dict(module.named_modules())
    priors: dict[str, WeightPrior] = {}
    for name, weight in learned:
        named = [p for p in parts if _is_below(name, p)]
        if not named:
            continue
        place = max(named, key=len)
        choice: Any = parts[place]
        if _chooses(choice):
            choice = choice(name, weight.detach())
        elif name != place and (
            weight.dim() == 0 or isinstance(holders[name.rpartition(".")[0]], _NORMS)
        ):
            continue
        if choice is not None:
            priors[name] = WeightPrior.of(name, choice, weight.shape)
    idle = [part for part in parts if not any(_is_below(name, part) for name in priors)]
    if not priors or any(not _chooses(parts[part]) for part in idle):
        raise ValueError(
            f"prior gives no weight of {idle[0] or type(module).__name__!r} a prior: a "
            "distribution is for tensors of weights outside norms, and a function gives one by the "
            "weight's name"
        )
    _refuse_unfit(module, priors, [part for part in parts if part not in idle])
    return priors


def put_priors(module: nn.Module, chosen: Mapping[str, WeightPrior]) -> None:
    """Make parameters of a module, which is not in use, latents in place, by
    :func:`chosen_priors`."""
    owners = {name.rpartition(".")[0] for name in chosen}
    parts = dict(module.named_modules())
    for path, part in parts.items():
        if not isinstance(part, PyroModule) and any(_is_below(owner, path) for owner in owners):
            _become_pyro(part)
    assert isinstance(module, PyroModule)
    module._pyro_name = ""
    name_by_place(module)
    for name, prior in chosen.items():
        path, _, attribute = name.rpartition(".")
        owner = parts[path]
        weight = owner._parameters[attribute]
        assert weight is not None
        setattr(owner, attribute, PyroSample(DrawnWeight(attribute, prior.family, weight.shape)))
        for key, value in prior.arguments.items():
            moved = value.to(dtype=weight.dtype, device=weight.device).clone()
            owner.register_buffer(_buffer(attribute, key), moved)


@dataclass(frozen=True)
class DrawnWeight:
    """The distribution of a weight, made of its owner's buffers: what a `PyroSample` calls."""

    attribute: str
    family: str
    shape: torch.Size

    def __call__(self, owner: nn.Module) -> Distribution:
        law = FAMILIES[self.family](**self.arguments(owner), validate_args=False)
        batch = self.shape[: len(self.shape) - len(law.event_shape)]
        return law.expand(batch).to_event(len(batch))

    def arguments(self, owner: nn.Module) -> dict[str, Tensor]:
        """The prior's arguments as the owner holds them."""
        start = _buffer(self.attribute, "")
        return {
            name.removeprefix(start): value
            for name, value in owner._buffers.items()
            if name.startswith(start) and value is not None
        }


def weight_priors(module: nn.Module) -> dict[str, dict[str, Any]]:
    """The priors of a module's weights as JSON, by the weight's name; latents that a part's own
    class makes are none of these. A prior given by hand has no description: TypeError."""
    priors = {}
    for path, part in module.named_modules():
        for attribute, drawn in getattr(part, "_pyro_samples", {}).items():
            name = f"{path}.{attribute}" if path else attribute
            if not isinstance(drawn, DrawnWeight):
                if written_class(part) is type(part):
                    continue
                raise TypeError(f"the prior of {name!r} is a PyroSample and cannot be described")
            priors[name] = WeightPrior(drawn.family, drawn.arguments(part)).json()
    return priors


def written_class(part: nn.Module) -> type:
    """The class that a module was written as, before it was made a `PyroModule`."""
    kind = type(part)
    first = kind.__bases__[0]
    made_of = issubclass(first, nn.Module) and not issubclass(first, PyroModule)
    if issubclass(kind, PyroModule) and made_of and kind.__name__.startswith("Pyro"):
        return first
    return kind


def _buffer(attribute: str, argument: str) -> str:
    return f"{attribute}_prior_{argument}"


def _chooses(prior: Any) -> bool:
    return callable(prior) and not isinstance(prior, Distribution | type)


def _is_below(name: str, part: str) -> bool:
    return not part or name == part or name.startswith(f"{part}.")


def _refuse_unfit(module: nn.Module, chosen: Mapping[str, Any], parts: list[str]) -> None:
    norms = [n for n, m in module.named_modules() if isinstance(m, _BATCH_NORMS)]
    among = [norm for norm in norms if any(_is_below(norm, part) for part in parts)]
    if among:
        raise ValueError(
            f"{among[0]!r} is a batch norm, under which a row's likelihood depends on the batch's "
            "other rows and the weights before it have no scale: give priors to the parts without "
            "one, as in {'selector': dist.Normal(0.0, 1.0)}, or use networks without batch norm"
        )
    every: dict[int, str] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        other = every.setdefault(id(weight), name)
        if other != name and other in chosen:
            raise ValueError(
                f"{other!r} and {name!r} are one parameter, and would be drawn as two: give them "
                "parameters of their own, or leave them out of prior"
            )
    parts_by_path = dict(module.named_modules())
    for name in chosen:
        path, _, attribute = name.rpartition(".")
        owner = parts_by_path[path]
        if attribute.removesuffix("_unconstrained") in getattr(owner, "_pyro_params", ()):
            raise ValueError(
                f"{name.removesuffix('_unconstrained')!r} is a constrained parameter (PyroParam): "
                "make it a PyroSample of a distribution with that support instead"
            )
        if hasattr(owner, "parametrizations") or path.split(".")[-2:-1] == ["parametrizations"]:
            raise ValueError(
                f"{name!r} is a parametrised weight (torch.nn.utils.parametrize), whose prior would"
                " be of what it is made of: remove the parametrisation, or leave it out of prior"
            )


def _become_pyro(part: nn.Module) -> None:
    """Pyro's `to_pyro_module_` for one module alone, also of an abstract class's subclass."""
    kind: Any = type(part)
    part.__class__ = _pyro_class(kind)
    blank = vars(PyroModule())
    for name in ("_pyro_name", "_pyro_context", "_pyro_params", "_pyro_samples"):
        vars(part)[name] = blank[name]


@cache
def _pyro_class(kind: Any) -> Any:
    if type(kind) is type:
        return PyroModule[kind]
    # Pyro's own way cannot join its metaclass with that of abstract classes.
    both = type("_PyroABCMeta", (type(PyroModule), type(kind)), {})
    return both(f"Pyro{kind.__name__}", (kind, PyroModule), {})


def explainer_with_prior(
    program: Module, prior: Prior | None, parts: tuple[str, ...] = PARTS
) -> Module:
    """An explainer, just built, whose `parts` have priors as :func:`with_prior`, in place."""
    if prior is None:
        return program
    if isinstance(prior, Mapping):
        others = sorted(name for name in prior if name.split(".")[0] not in parts)
        if others:
            raise ValueError(
                f"prior names {others}; weights that can have priors are those of {list(parts)}"
            )
    else:
        by_part = {name: getattr(program, name).parameters() for name in parts}
        prior = {n: prior for n, ws in by_part.items() if any(w.requires_grad for w in ws)}
    put_priors(program, chosen_priors(program, prior))
    return program


def name_by_place(program: PyroModule) -> None:
    """Let each Pyro part name its latents by its place in the program, also below plain torch
    modules, where Pyro would name `selector.network.weight` `weight`, and draw them once a call."""
    for path, part in program.named_modules():
        if path and isinstance(part, PyroModule):
            part._pyro_name = path
            part._pyro_context = program._pyro_context


class BetaBernoulliSelector(Configured, PyroModule):
    r"""Independent entries whose rate of inclusion is inferred, one for all rows and entries:

    .. math:: \pi \sim \mathrm{Beta}(a, b), \qquad
        z_g \mid x, \pi \sim \mathrm{Bernoulli}\bigl(\sigma(f(x)_g + \log\tfrac{\pi}{1-\pi})\bigr).

    Spike and slab with λ learned: where f is 0 a mask has probability `e^{−λ|z|} / (1 + e^{−λ})^G`
    with `λ = log (1−π)/π` nats for each entry. A guide or a sampler for `rate` is fully Bayesian,
    and corrects for the number of entries; its mode under a = b = 1 (`AutoDelta`) is empirical
    Bayes. π is distinct from the network's level only where that is fixed, or its weights have a
    prior (:func:`lexppl.models.with_prior`).

    Site: `rate`, in no plate. Under a network that says 0 the sizes are
    :func:`lexppl.distributions.beta_binomial_sizes`.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        a, b: of the Beta distribution, above 0; 1 and G for about one entry.

    Raises:
        ValueError: a or b not positive.

    References:
        George & McCulloch (1993), "Variable selection via Gibbs sampling", JASA 88. Scott & Berger
        (2010), "Bayes and empirical-Bayes multiplicity adjustment in the variable-selection
        problem", Annals of Statistics 38, § 2 and § 3.

    Example:
        >>> selector = BetaBernoulliSelector(nn.Identity(), 1.0, 3.0)
        >>> with torch.random.fork_rng():
        ...     selector(torch.zeros(4, 3)).batch_shape
        torch.Size([4])
    """

    def __init__(self, network: nn.Module, a: float = 1.0, b: float = 1.0) -> None:
        super().__init__()
        self.network = network
        self.a = finite_float("a", a, above=0.0)
        self.b = finite_float("b", b, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.rate = PyroSample(_rate)

    def forward(self, x: Tensor) -> TorchDistribution:
        logits = self.network(x)
        rate = self.rate.to(logits.dtype).clamp(1e-6, 1.0 - 1e-6)
        return dist.Bernoulli(logits=logits + rate.logit()).to_event(1)


class PriorLogits(Configured, nn.Module):
    r"""A selector's network beside what is known of the features: `f(x)_g + o_g`.

    In an independent mask :math:`o_g = \log\frac{\rho_g}{1-\rho_g}` are the prior log-odds that
    entry g is kept where the network says 0; in a k-subset only their differences count.

    Args:
        network: `(B, *event)` to logits `(B, G)`.
        log_odds: o, one for each entry, in nats.

    Raises:
        ValueError: one that is not finite; when first used, other than G.

    Example:
        >>> PriorLogits(nn.Identity(), [2.0, -1.0])(torch.zeros(1, 2))
        tensor([[ 2., -1.]])
    """

    def __init__(self, network: nn.Module, log_odds: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.log_odds = tuple(finite_float("a log-odds", value) for value in log_odds)
        self._kept = MadeOnce()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        shaped("the network's output", logits, ("…", len(self.log_odds)))
        return logits + self._kept.like(logits, self.log_odds, torch.tensor)


class HorseshoeLinear(Configured, PyroModule):
    r"""A linear network `f(x) = b + x Wᵀ` whose weights have the horseshoe prior, non-centred:

    .. math:: \tau \sim \mathrm{C}^+(0, \tau_0), \quad \lambda_{gd} \sim \mathrm{C}^+(0, 1), \quad
        \epsilon_{gd} \sim \mathcal N(0, 1), \quad W_{gd} = \tau \lambda_{gd} \epsilon_{gd} .

    With `D₀` of D features expected to say something in N rows, τ₀ about `D₀ / ((D − D₀) √N)` times
    the scale of the logits' noise (about 2) is a fair choice.

    Sites: `global_scale` (), `local_scale` and `effect` `(G, D)`, and `intercept` `(G,)` under
    `Normal(0, intercept_scale)`; in no plate.

    Args:
        inputs: D.
        outputs: G.
        scale: τ₀, above 0.
        intercept_scale: of b, above 0.

    Raises:
        ValueError: sizes below 1, scales that are not positive.

    References:
        Carvalho, Polson & Scott (2010), "The horseshoe estimator for sparse signals", Biometrika
        97, eq. 1 and 2. Piironen & Vehtari (2017), "Sparsity information and regularization in the
        horseshoe and other shrinkage priors", EJS 11, § 3.3, for τ₀.

    Example:
        >>> with torch.random.fork_rng():
        ...     HorseshoeLinear(3, 2, scale=0.1)(torch.zeros(4, 3)).shape
        torch.Size([4, 2])
    """

    def __init__(
        self, inputs: int, outputs: int, scale: float = 1.0, intercept_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.inputs = int_at_least("inputs", inputs)
        self.outputs = int_at_least("outputs", outputs)
        self.scale = finite_float("scale", scale, above=0.0)
        self.intercept_scale = finite_float("intercept_scale", intercept_scale, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.global_scale = PyroSample(_global_scale)
        self.local_scale = PyroSample(_local_scale)
        self.effect = PyroSample(_effect)
        self.intercept = PyroSample(_intercept)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.global_scale * self.local_scale * self.effect
        return nn.functional.linear(x, weight, self.intercept)


class SiteOffsets(Configured, PyroModule):
    r"""A selector's network with offsets of sites (hospitals, schools, batches), partially pooled:

    .. math:: \tau \sim \mathrm{HalfNormal}(s), \quad \epsilon_{jg} \sim \mathcal N(0, 1), \qquad
        f_{\text{all}}(x_n)_g + \tau \, \epsilon_{j(n), g} .

    The offsets, in log-odds, say how the sites differ in what matters there. The site's number is a
    column of x, which the network is not given; where the predictor is not to see it either, a
    :class:`lexppl.models.Grouping` leaves it to an entry of its own.

    Sites: `spread` () and `effect` `(J, G)`, in no plate: one value for all rows.

    Args:
        network: from the other columns `(B, D − 1)` to logits `(B, G)`.
        sites: J.
        outputs: G.
        column: which column of x has the sites' numbers 0, …, J − 1.
        scale: s of τ, in log-odds, above 0.

    Raises:
        ValueError: numbers out of range; when used, rows without that column, or with other numbers
            of sites (looked at where Pyro validates, as in the first step of a fit).

    References:
        Gelman & Hill (2007), "Data analysis using regression and multilevel/hierarchical models",
        ch. 13. Papaspiliopoulos, Roberts & Sköld (2007), "A general framework for the
        parametrization of hierarchical models", Statistical Science 22.

    Example:
        >>> network = SiteOffsets(nn.Linear(2, 3), sites=5, outputs=3, column=0)
        >>> with torch.random.fork_rng():
        ...     network(torch.tensor([[0.0, 1.0, 2.0], [4.0, 1.0, 2.0]])).shape
        torch.Size([2, 3])
    """

    def __init__(
        self, network: nn.Module, sites: int, outputs: int, column: int = 0, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.network = network
        self.sites = int_at_least("sites", sites)
        self.outputs = int_at_least("outputs", outputs)
        self.column = int_at_least("column", column, 0)
        self.scale = finite_float("scale", scale, above=0.0)
        self.register_buffer("_one", torch.ones(()))
        self.spread = PyroSample(_spread)
        self.effect = PyroSample(_site_effect)

    def forward(self, x: Tensor) -> Tensor:
        int_between("column", self.column, 0, x.shape[-1] - 1, note="the columns of x")
        site = x[..., self.column]
        if is_validation_enabled() and not bool(
            ((site == site.round()) & (site >= 0) & (site < self.sites)).all()
        ):
            raise ValueError(
                f"column {self.column} must hold the numbers 0 to {self.sites - 1} of the sites; "
                f"it runs from {float(site.min())} to {float(site.max())}"
            )
        others = torch.cat([x[..., : self.column], x[..., self.column + 1 :]], -1)
        # A product in place of an index runs for replicates at once.
        is_site = site.unsqueeze(-1) == torch.arange(self.sites, device=x.device)
        return self.network(others) + self.spread * (is_site.to(x.dtype) @ self.effect)


def _each(law: TorchDistribution, *shape: int) -> TorchDistribution:
    """Independent draws of one distribution, of an event shape."""
    return law.expand(shape).to_event(len(shape))


# Functions of a module each, so that what holds them can be pickled.


def _rate(part: Any) -> TorchDistribution:
    return dist.Beta(part.a * part._one, part.b * part._one)


def _global_scale(part: Any) -> TorchDistribution:
    return dist.HalfCauchy(part.scale * part._one)


def _local_scale(part: Any) -> TorchDistribution:
    return _each(dist.HalfCauchy(part._one), part.outputs, part.inputs)


def _effect(part: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * part._one, part._one), part.outputs, part.inputs)


def _intercept(part: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * part._one, part.intercept_scale * part._one), part.outputs)


def _spread(part: Any) -> TorchDistribution:
    return dist.HalfNormal(part.scale * part._one)


def _site_effect(part: Any) -> TorchDistribution:
    return _each(dist.Normal(0.0 * part._one, part._one), part.sites, part.outputs)
