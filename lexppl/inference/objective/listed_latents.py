"""Every joint value of the discrete latents of a program, in the place of draws."""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyro.distributions as dist
import torch
from torch import Tensor
from torch.distributions import Distribution

from lexppl.distributions import mask_support
from lexppl.effects import MASK_DIM
from lexppl.inference.objective.program import Draw, ParticleTrace
from lexppl.inference.objective.site import Site

MOST_JOINT = 65_536  # Joint values that are listed at most, of all latents that stand in one log

FEWER = "use fewer rows or entries in one log, or an estimator that draws them"


OTHER_VALUES = (
    "the values listed of {} have {}: which it can take depends on another latent of its particle, "
    "such as a k of its own. Give a distribution of all of them, such as RandomSizeSubset, or use "
    "an estimator that draws them"
)


class ListedLatents:
    """The M joint values of the discrete latents within a program's mask particles.

        first = program.run()
        listed = ListedLatents(first, first.mask_sites)
        run = program.run(len(listed), 1, listed.give)
        log_joint = listed.log_prior(run) + run.log_weight              (…, M, B or 1)

    Entries of plates that all latents and all observed sites share outside the log are listed side
    by side; a latent of v values in E entries of other plates has v^E. A `Delta` is left alone.

    Args:
        run: one run of the program with one particle.
        sites: latents of the run within the mask particles.
        most: joint values at most.
        copies: how often each is given, one behind the other.
        instead: the end of the refusal where there are more.
        apart: by site the dimensions whose entries are listed side by side; None for those of
            shared plates.
    """

    def __init__(
        self,
        run: ParticleTrace,
        sites: Sequence[Site],
        *,
        most: int = MOST_JOINT,
        copies: int = 1,
        instead: str = FEWER,
        apart: Mapping[str, Collection[int | None]] | None = None,
    ) -> None:
        sites = [site for site in sites if not is_point(site.distribution)]
        judged = [site for site, _ in run.weighted]
        judged += [site for site in run.sites.values() if site.is_penalty and site.in_particles]
        if apart is None:
            outer = [set(site.outer.items()) for site in (*sites, *judged)]
            shared = set.intersection(*outer) if sites else set()
            apart = {site.name: {dim for _, dim in shared} for site in sites}
        self._apart = apart
        values = joint_values(sites, most, apart=self._apart, instead=instead)
        self._count = len(next(iter(values.values()))) if sites else 1
        self.values: dict[str, Tensor] = {}
        for site in sites:
            # The list stands where the run has its one particle: (…, M, B or 1, *event).
            place = MASK_DIM - len(site.distribution.event_shape)
            listed = values[site.name].transpose(0, place).squeeze(0)
            self.values[site.name] = listed.repeat_interleave(copies, place)

    def __len__(self) -> int:
        """Number of combinations of the latents' values, M."""
        return self._count

    @property
    def names(self) -> list[str]:
        """The sites that are listed; the last one's values change fastest."""
        return list(self.values)

    def give(self, site: Site) -> Tensor | None:
        """The value of a listed site in a run with a particle for each joint value, else None."""
        value = self.values.get(site.name)
        if value is None:
            return None
        return value.expand(*site.distribution.batch_shape, *site.distribution.event_shape)

    def log_prior(self, run: ParticleTrace) -> Tensor:
        """log p(z | x) of a run with these values, or log q of a guide's, `(…, M, B or 1)`."""
        total: Tensor | float = 0.0
        for site in run.drawn:
            if site.name not in self.values:
                continue
            value = draw_log_prob(site)
            jointly = {*range(-value.dim(), 0)} - {MASK_DIM, *self._apart[site.name]}
            total = total + (value.sum([*jointly], keepdim=True) if jointly else value)
        return torch.as_tensor(total)


def draw_log_prob(site: Site) -> Tensor:
    """Log-density of each entry of a listed latent, masked or not."""
    distribution = site.distribution
    while isinstance(distribution, dist.MaskedDistribution):
        distribution = distribution.base_dist
    try:
        value: Tensor = distribution.log_prob(site.value)
    except ValueError:
        raise ValueError(OTHER_VALUES.format([site.name], "some that are not there")) from None
    return value


def joint_values(
    sites: Sequence[Site],
    most: int,
    *,
    apart: Mapping[str, Collection[int | None]] | None = None,
    instead: str = FEWER,
) -> dict[str, Tensor]:
    """Every joint value of some latents, `(M, *batch, *event)`; the last one's change fastest."""
    supports = [support_of(site, most, instead) for site in sites]
    shapes = []
    for site in sites:
        shape, side_by_side = site.distribution.batch_shape, (apart or {}).get(site.name, ())
        shapes.append([1 if d - len(shape) in side_by_side else n for d, n in enumerate(shape)])
    entries = [math.prod(shape) for shape in shapes]
    counts = [len(support) ** n for support, n in zip(supports, entries, strict=True)]
    if not 0 < (count := math.prod(counts)) <= most:
        factors = " × ".join(
            f"{len(support)}^{n} values of {site.name!r}"
            for site, support, n in zip(sites, supports, entries, strict=True)
        )
        raise ValueError(
            f"{factors} stand in one log, and at most {most:,} joint values are listed: {instead}"
        )
    sizes = [len(support) for support, n in zip(supports, entries, strict=True) for _ in range(n)]
    digits: Iterator[Tensor] = iter(())
    if sizes:
        numbers = torch.arange(count, device=supports[0].device)
        digits = iter(torch.unravel_index(numbers, sizes))
    values = {}
    for site, support, shape, n in zip(sites, supports, shapes, entries, strict=True):
        index = torch.stack(list(islice(digits, n)), -1).to(support.device)
        values[site.name] = support[index].reshape(count, *shape, *site.distribution.event_shape)
    return values


def support_of(site: Site, most: int, instead: str = FEWER) -> Tensor:
    """The values of one entry of a site's batch, `(M, *event)`."""
    distribution = site.distribution
    try:
        if len(distribution.event_shape) == 1:
            values = mask_support(distribution, most)
        else:
            values = distribution.enumerate_support(expand=False)
    except (ValueError, TypeError, NotImplementedError) as error:
        kind, reason = type(distribution).__name__, str(error).split(";", maxsplit=1)[0]
        reason = f" ({reason})" if reason else ""  # Pyro's own errors have none
        raise ValueError(
            f"the values of {site.name!r}, of {kind}, cannot be listed{reason}: {instead}"
        ) from None
    return values.reshape(len(values), *distribution.event_shape)


def refuse_outside(sites: Iterable[Site]) -> None:
    """Refuse a list with values that a distribution cannot take, which has a density of its own for
    them where values are not validated."""
    for site in sites:
        support = getattr(site.distribution, "support", None)
        if support is not None and not bool(support.check(site.value).all()):
            raise ValueError(OTHER_VALUES.format([site.name], "some that are not there"))


def refuse_missing(log_prior: Tensor, names: Collection[str]) -> None:
    """Refuse a list whose probabilities do not add up to one; a `vmap` is not checked."""
    total = torch.logsumexp(log_prior.detach().float(), MASK_DIM)
    try:
        complete = bool((total.abs() < 1e-3).all())
    except RuntimeError:
        return
    if not complete:
        listed = f"a total probability of {float(total.exp().min()):.3g}"
        raise ValueError(OTHER_VALUES.format([*names], listed))


def refuse_read_unobserved(run: ParticleTrace, again: Callable[[Draw], ParticleTrace]) -> None:
    """Refuse a program that reads what `obs_mask=` leaves unobserved of values that cannot be
    listed; `again` is another run with some values given."""
    if not (names := run.unobserved):
        return
    values = {site.name: site.value for site in run.drawn if site.name not in names}
    other = again(lambda site: values.get(site.name))
    for (site, _), (same, _) in zip(run.weighted, other.weighted, strict=True):
        if not torch.allclose(site.log_prob(), same.log_prob(), 1e-4, 1e-5, equal_nan=True):
            raise ValueError(
                f"site {site.name!r} reads {sorted(names)}, which obs_mask leaves unobserved, and "
                f"whose values cannot be listed: {FEWER}"
            )


def is_point(distribution: Any) -> bool:
    """Whether a distribution has one value: a Delta, also as the imputation of hidden entries."""
    for name in ("base_dist", "hidden_distribution"):
        inner = getattr(distribution, name, None)
        if isinstance(inner, Distribution):
            return is_point(inner)
    return isinstance(distribution, dist.Delta)
