"""The bound of a program and `log p(y)` by the sum over all values of all latents, in one run.

Nothing of the library's reading of a program is used: a program is run under Pyro's trace with its
latents forced to all their joint values at once, along a dimension to the left of all plates, and
the sums are written out. `UndefinedError` says that a program has no bound to be compared with:
it is to be refused.
"""

import itertools
import math

import pyro
import torch
from torch import Tensor

from tests.programs.enumeration import Case, traces

MASKS, IMPUTATIONS = "mask_particles", "imputation_particles"
DIMS = 6
"""All values stand at dim −6, plates at −1 to −5."""


class UndefinedError(Exception):
    """The program means no bound."""


def _traces(functions, p, masks, imputations, values):
    with pyro.validation_enabled(False):
        return traces(Case(functions[0], p, functions[1]), p, masks, imputations, values)


def all_draws(functions, p, masks, imputations, most) -> dict[str, Tensor]:
    """Every joint value of all binary latents, `(draws, …)`.

    Raises:
        UndefinedError: more than so many; sites that the plates do not declare.
    """
    with torch.no_grad():
        model, guide = _traces(functions, p, masks, imputations, {})
    latents = {n: s["fn"] for n, s in (*model.items(), *guide.items()) if not s["is_observed"]}
    latents |= {n: s["fn"] for n, s in guide.items() if not s["is_observed"]}
    for name, node in (*model.items(), *guide.items()):
        declared = {f.dim for f in node["cond_indep_stack"] if f.vectorized}
        for d, size in enumerate(reversed(node["fn"].batch_shape), 1):
            if size > 1 and -d not in declared:
                raise UndefinedError(f"{name!r} has dim {-d} that no plate declares")
    counts = {n: math.prod((*fn.batch_shape, *fn.event_shape)) for n, fn in latents.items()}
    total = sum(counts.values())
    if 2**total > most:
        raise OverflowError(f"2^{total} draws")
    every = torch.tensor(list(itertools.product([0.0, 1.0], repeat=total)), dtype=torch.double)
    parts = every.split(list(counts.values()), -1) if counts else ()
    return {
        name: part.reshape(
            len(every), *[1] * (DIMS - 1 - len(fn.batch_shape)), *fn.batch_shape, *fn.event_shape
        )
        for (name, fn), part in zip(latents.items(), parts, strict=True)
    }


def _log_prob(node) -> Tensor:
    value = node["fn"].log_prob(node["value"])
    if value.dim() > DIMS:
        raise UndefinedError("a draw of more dims than its distribution has")
    return value.reshape(*[1] * (DIMS - value.dim()), *value.shape)


def _total(value: Tensor) -> Tensor:
    """Summed over all but the draws."""
    return value.sum(tuple(range(1, DIMS)))


def _scale(node):
    scale = torch.as_tensor(node["scale"], dtype=torch.double)
    return scale.reshape(*[1] * (DIMS - scale.dim()), *scale.shape)


def _names(node):
    return [f.name for f in node["cond_indep_stack"]]


def _outer(node):
    names = _names(node)
    before = node["cond_indep_stack"][: names.index(MASKS)]
    return {(f.name, 0 if f.vectorized else f.counter): f.dim for f in before}


class Run:
    """All draws of a program with so many particles."""

    def __init__(self, functions, p, masks, imputations, most=4096):
        self.masks, self.imputations = masks, imputations
        try:
            values = all_draws(functions, p, masks, imputations, most)
            self.model, self.guide = _traces(functions, p, masks, imputations, values)
        except (UndefinedError, OverflowError):
            raise
        except Exception as error:
            raise UndefinedError(f"does not run: {error}") from error
        self.values = values
        self.draws = len(next(iter(values.values()))) if values else 1

    def _drawn(self):
        for name, node in self.guide.items():
            if not node["is_observed"]:
                yield name, node
        for name, node in self.model.items():
            if not node["is_observed"] and name not in self.guide:
                yield name, node

    def log_probability(self) -> Tensor:
        """Of the draws."""
        found = torch.zeros(self.draws, dtype=torch.double)
        for _, node in self._drawn():
            found = found + _total(_log_prob(node))
        return found

    def _weighted(self):
        for name, node in self.model.items():
            if node["infer"].get("penalty"):
                continue
            if node["is_observed"] and name in self.guide:
                raise UndefinedError(f"the guide draws {name!r}, which is observed")
            if node["is_observed"] or name in self.guide:
                yield node, 1.0
            elif MASKS not in _names(node):
                raise UndefinedError(f"{name!r} is drawn from its prior outside the bound")
        for name, node in self.guide.items():
            if node["is_observed"] or name not in self.model:
                raise UndefinedError(f"the guide has {name!r}")
            yield node, -1.0

    def units(self):
        """`log w` of each unit that has a log of its own, its scale, the plates outside."""
        groups: dict = {}
        for node, sign in self._weighted():
            if MASKS in _names(node):
                groups.setdefault(frozenset(_outer(node)), []).append((node, sign))
        if len({tuple(sorted(n for n, _ in key)) for key in groups}) > 1:
            raise UndefinedError("no log in common")
        if not groups:
            raise UndefinedError("nothing observed")
        for stated in groups.values():
            scales = [_scale(node) for node, _ in stated]
            if any(not torch.equal(*torch.broadcast_tensors(s, scales[0])) for s in scales):
                raise UndefinedError("scales differ in a log")
            for name, node in self._drawn():
                own = _scale(node)
                proposed = MASKS in _names(node) and name not in self.guide
                alike = all(torch.equal(*torch.broadcast_tensors(s, own)) for s in scales)
                if proposed and bool((own != 1).any()) and not alike:
                    raise UndefinedError(f"the scale of {name!r} is in no term")
            outer = set(_outer(stated[0][0]).values())
            total = torch.zeros([1] * DIMS, dtype=torch.double)
            for node, sign in stated:
                dims = {f.dim for f in node["cond_indep_stack"] if f.vectorized}
                if self.imputations > 1 and -3 in dims and IMPUTATIONS not in _names(node):
                    raise UndefinedError("a plate at the imputations' dim")
                inner = {f.dim for f in node["cond_indep_stack"] if f.vectorized}
                inner -= outer | {-2} | ({-3} if IMPUTATIONS in _names(node) else set())
                value = sign * _log_prob(node)
                total = total + (value.sum(tuple(inner), keepdim=True) if inner else value)
            if scales[0].dim() and any(
                scales[0].shape[d] > 1 for d in range(-DIMS, 0) if d not in outer
            ):
                raise UndefinedError("a scale inside a log")
            yield total, scales[0]

    def outside(self) -> Tensor:
        total = torch.zeros(self.draws, dtype=torch.double)
        for node, sign in self._weighted():
            if MASKS not in _names(node):
                total = total + sign * _total(_scale(node) * _log_prob(node))
        return total

    def penalties(self) -> Tensor:
        total = torch.zeros(self.draws, dtype=torch.double)
        for node in self.model.values():
            if node["infer"].get("penalty"):
                value = _scale(node) * _log_prob(node)
                shares = [n for n in _names(node) if n in (MASKS, IMPUTATIONS)]
                size = {MASKS: self.masks, IMPUTATIONS: self.imputations}
                total = total + _total(value) / math.prod(size[n] for n in shares)
        return total

    def bound(self, penalty=0.0) -> Tensor:
        """The objective's expectation, with a gradient."""
        total = self.outside() + penalty * self.penalties()
        if self.masks * self.imputations == 1:
            inside = [(node, s) for node, s in self._weighted() if MASKS in _names(node)]
            if not inside:
                raise UndefinedError("nothing observed")
            for node, sign in inside:
                total = total + sign * _total(_scale(node) * _log_prob(node))
        else:
            for value, scale in self.units():
                value = value.expand(*value.shape[:-2], self.masks, value.shape[-1])
                value = torch.logsumexp(value, -2, keepdim=True) - math.log(self.masks)
                if self.imputations > 1:
                    size = (*value.shape[:-3], self.imputations, *value.shape[-2:])
                    value = torch.logsumexp(value.expand(size), -3, keepdim=True)
                    value = value - math.log(self.imputations)
                total = total + _total(scale * value)
        return (self.log_probability().exp() * total).sum()

    @property
    def scaled(self) -> bool:
        return any(
            bool((_scale(node) != 1).any()) for node in (*self.model.values(), *self.guide.values())
        )

    def log_evidence(self) -> Tensor:
        """`log p(y)`, of a run with one particle: over all values of all latents."""
        return torch.logsumexp(self.log_joint(), 0)

    def posterior(self) -> Tensor:
        """`p(z, θ | y)` of each of `values`, of a run with one particle: `(draws,)`."""
        return torch.softmax(self.log_joint(), 0)

    def log_joint(self) -> Tensor:
        """`log p(y, z, θ)` of each draw."""
        total = torch.zeros(self.draws, dtype=torch.double)
        for node in self.model.values():
            if not node["infer"].get("penalty"):
                total = total + _total(_log_prob(node))
        return total

    def limits(self) -> tuple[float, float]:
        """Of a run with one particle: what the bound tends to with more masks, and what it should,
        `E log p(y, θ) − log q(θ)` over the latents θ outside."""
        within = torch.zeros(self.draws, dtype=torch.double)
        for node in self.model.values():
            if MASKS in _names(node) and not node["infer"].get("penalty"):
                within = within + _total(_log_prob(node))
        draws = torch.zeros(self.draws, dtype=torch.double)
        before = torch.zeros(self.draws, dtype=torch.double)
        outside = []
        for name, node in self._drawn():
            value = _total(_log_prob(node))
            if MASKS in _names(node):
                draws = draws + value
            else:
                before = before + value
                outside.append(self.values[name].reshape(self.draws, -1))
        units = [_expanded(value, self.draws) for value, _ in self.units()]
        keys = torch.cat(outside, -1) if outside else torch.zeros(self.draws, 1)
        rest = self.outside()
        found = wanted = 0.0
        for key in torch.unique(keys, dim=0):
            at = (keys == key).all(-1)
            q = float(before[at][0].exp())
            each = sum(
                float(torch.logsumexp(draws[at].reshape(-1, *[1] * 5) + unit[at], 0).sum())
                for unit in units
            )
            found += q * (float(rest[at][0]) + each)
            wanted += q * (float(rest[at][0]) + float(torch.logsumexp(within[at], 0)))
        return found, wanted


def _expanded(value: Tensor, draws: int) -> Tensor:
    return value.expand(draws, *value.shape[1:])
