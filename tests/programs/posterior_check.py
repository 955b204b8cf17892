"""A program's numbers after the bound, compared with the sum over all joint values.

The reference runs the program's statements on all joint values of its latents at once, without
Pyro's handlers and without the library's lists: `log p(z)`, what else is observed and `log p(y)`.
"""

import itertools
import math
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from scipy.stats import binom
from torch import Tensor

from lexppl.distributions import KSubset
from lexppl.evaluation import feature_evidence, log_marginal_likelihood, loo
from lexppl.explanation import explain
from lexppl.inference import Enumerate, NestedIWAE
from tests.programs.odd_check import raised_by_lexppl
from tests.programs.posterior_programs import (
    ENTRIES,
    EVIDENCE,
    GIVEN_X,
    GIVEN_Y,
    KINDS,
    LOO,
    LOSS,
    SEEN,
    TABLE,
    Ingredients,
    PosteriorProgram,
    Statement,
    Values,
)

CLOSE, CLOSE_MEAN, FARTHEST = 1e-8, 1e-6, 4.0
"""Of log-densities in nats, of probabilities, and of what is drawn in standard errors."""
TAIL = 6e-5
"""Probability beyond four standard errors on both sides."""
DRAWS, POSTERIOR_DRAWS = 200, 400


def posterior_program(name: str, seed: int) -> PosteriorProgram:
    """The program of a kind and a seed: at most 4,096 joint values, or the kind's, y drawn from
    it."""
    start = zlib.crc32(f"{name} {seed}".encode())
    for attempt in itertools.count():
        ingredients = Ingredients(start + attempt)
        found = replace(KINDS[name].build(ingredients), kind=name)
        if found.joint_values > KINDS[name].largest:
            continue
        if any(isinstance(s.of({}, found.x), dist.ImproperUniform) for s in found.statements[:1]):
            return replace(found, y=torch.ones(len(found.x)).double())
        y = Reference(found).response(start)
        if y is not None:
            return replace(found, y=y)
    raise AssertionError


class Reference:
    """All joint values of a program and their log-probabilities."""

    def __init__(self, program: PosteriorProgram) -> None:
        self.program = program
        latents = program.latents
        supports = [s.support for s in latents]
        counts = [program.entries(s) for s in latents]
        sizes = [len(v) for v, n in zip(supports, counts, strict=True) for _ in range(n)]
        every = list(itertools.product(*map(range, sizes)))
        index = torch.tensor(every).reshape(len(every), len(sizes))
        parts = index.split(counts, -1) if counts else ()
        self.values: Values = {
            s.name: v[part] for s, v, part in zip(latents, supports, parts, strict=True)
        }
        x, self.count = program.x, len(index)
        self.prior = self.other = torch.zeros(self.count).double()
        for statement in program.statements:
            if statement.kind == "deterministic":
                shape = (self.count, program.entries(statement))
                self.values[statement.name] = statement.of(self.values, x).expand(shape)
            elif statement.kind == "latent":
                self.prior = self.prior + self._log_prob(statement).sum(-1)
                if statement.log_weights is not None:
                    chosen = parts[latents.index(statement)]
                    self.prior = self.prior + statement.log_weights[chosen].sum(-1)
            elif statement.kind == "factor":
                value = statement.of(self.values, x)
                entries = program.entries(statement)
                self.other = self.other + value.expand(self.count, entries).sum(-1)
            elif statement.kind == "observed" and statement.column is not None:
                fn = statement.of(self.values, x)
                value = fn.log_prob(x[:, statement.column]).expand(self.count, len(x))
                self.other = self.other + value.sum(-1)

    def _log_prob(self, statement: Statement) -> Tensor:
        fn, value = statement.of(self.values, self.program.x), self.values[statement.name]
        if not isinstance(fn, KSubset):
            return fn.log_prob(value)
        # By all subsets of so many entries.
        every = torch.tensor(
            list(itertools.product([0.0, 1.0], repeat=value.shape[-1])), dtype=torch.double
        )
        k = torch.as_tensor(fn.k).unsqueeze(-1)
        scores = (fn.logits.unsqueeze(-2) * every).sum(-1)
        scores = torch.where(every.sum(-1) == k, scores, -math.inf)
        found = (value * fn.logits).sum(-1) - scores.logsumexp(-1)
        return torch.where(value.sum(-1) == k.squeeze(-1), found, -math.inf)

    def response(self, seed: int) -> Tensor | None:
        """Responses drawn given one joint value; None where all are impossible."""
        log_p = self.prior + self.other
        if bool(log_p.isneginf().all()):
            return None
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            one = torch.multinomial(log_p.softmax(0), 1)
            values = {name: value[one] for name, value in self.values.items()}
            response = self.program.response
            fn = (response.marginal or response.of)(values, self.program.x)
            return fn.sample().reshape(-1).expand(len(self.program.x)).clone()

    @cached_property
    def y(self) -> Tensor:
        """log p(y | z), `(S, rows)`, or `(S, 1)` of one response of all rows."""
        program, response = self.program, self.program.response
        fn = (response.marginal or response.of)(self.values, program.x)
        value = fn.log_prob(program.y).expand(self.count, program.entries(response))
        return torch.where(program.x[:, SEEN] > 0, value, 0.0) if program.masked else value

    @property
    def before(self) -> Tensor:
        """log p(z, all that is observed but y)."""
        return self.prior + self.other

    @property
    def joint(self) -> Tensor:
        return self.before + self.y.sum(-1)

    @property
    def log_loss(self) -> float:
        """log p(y and all else observed)."""
        return float(self.joint.logsumexp(0))

    @property
    def log_evidence(self) -> float:
        """log p(y | all else observed)."""
        return float(self.joint.logsumexp(0) - self.before.logsumexp(0))

    @property
    def row_evidence(self) -> Tensor:
        """log p(y_n | all else observed)."""
        every = (self.before.unsqueeze(-1) + self.y).logsumexp(0)
        return every - self.before.logsumexp(0)

    @property
    def loo(self) -> Tensor:
        """log p(y_n | the other rows' y and all else observed)."""
        rows = self.y.shape[-1]
        others = [self.y[:, [m for m in range(rows) if m != n]].sum(-1) for n in range(rows)]
        left = torch.stack([(self.before + one).logsumexp(0) for one in others])
        return self.joint.logsumexp(0) - left

    def weights(self, given_y: bool) -> Tensor:
        return (self.joint if given_y else self.before).softmax(0)

    @property
    def other_is_observed(self) -> bool:
        """Whether a factor or anything but y is observed."""
        return bool((self.other != 0).any())

    def variance(self, mask: Statement, given_y: bool, *, of_means: bool) -> Tensor:
        """That of a mask's entries, or of their means given the latents before it."""
        value = self.values[mask.name]
        if of_means:
            value = mask.of(self.values, self.program.x).mean.expand(value.shape)
        weights, value = self.weights(given_y), value.reshape(self.count, -1)
        return (weights @ value**2 - (weights @ value) ** 2).clamp(min=0.0)

    def coordinates(self, names: list[str]) -> dict[str, Tensor]:
        """By site the values `(S, entries × event)`."""
        return {name: self.values[name].reshape(self.count, -1).double() for name in names}

    # What K drawn imputations leave uncertain: at most as if all values had the same draws

    @cached_property
    def spread(self) -> Tensor:
        """Relative standard deviation of the mean of K densities, `(S, rows)`."""
        program = self.program
        square = program.response.log_square(self.values, program.x)(program.y)
        excess = (square - 2 * self.y).expm1().clamp(min=0.0)
        if not program.apart:
            excess = (1 + excess).prod(-1, keepdim=True) - 1
        return (excess / program.imputations).sqrt()

    @property
    def log_error(self) -> float:
        """Standard error of log p(y), and of what bias there may be."""
        by_row = (self.weights(True).unsqueeze(-1) * self.spread).sum(0)
        return float(by_row.square().sum().sqrt() + by_row.square().sum() / FARTHEST)

    def mean_error(self, values: Tensor, mean: Tensor) -> Tensor:
        """Standard errors of means given y."""
        largest = self.spread.max(-1, keepdim=True).values
        return (self.weights(True).unsqueeze(-1) * (values - mean).abs() * largest).sum(0) * 1.3


@dataclass(frozen=True)
class Verdict:
    """What came of a program and of its entries: "right", "refused", "unnamed", "raw", "wrong"."""

    outcome: str
    entries: dict = field(default_factory=dict)
    says: dict = field(default_factory=dict)


ORDER = ("right", "refused", "unnamed", "raw", "wrong")
"""From the best to the worst; that of a program is the worst of its entries'."""


def verdict(program: PosteriorProgram, entries: tuple[str, ...] = ENTRIES) -> Verdict:
    """Compare all numbers of a program with brute force."""
    reference = None if program.kind == "an improper prior" else Reference(program)
    outcomes, says = {}, {}
    for entry in entries:
        with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    complaint = CHECKS[entry](program, reference)
                    outcomes[entry] = "right" if complaint is None else "wrong"
                    if complaint is not None:
                        says[entry] = complaint
                except Exception as error:
                    outcomes[entry] = refusal(program, error, entry)
                    says[entry] = f"{type(error).__name__}: {error}"
    refused = KINDS[program.kind].refused
    for entry in outcomes.keys() & refused:
        if outcomes[entry] == "right":
            outcomes[entry], says[entry] = "wrong", "accepted, and is to be refused"
    # That masks are shared, or several, is no fault of a program that is left out row by row.
    judged = [
        o for e, o in outcomes.items() if e not in (LOO, TABLE) or o not in ("refused", "unnamed")
    ]
    judged += [o for e, o in outcomes.items() if e == LOO and LOO in refused]
    return Verdict(max(judged, key=ORDER.index, default="right"), outcomes, says)


def refusal(program: PosteriorProgram, error: Exception, entry: str = "") -> str:
    """ "refused" where an error is ours and names a site, else "unnamed" or "raw"."""
    if not isinstance(error, ValueError | TypeError) or not raised_by_lexppl(error):
        return "raw"
    named = any(f"'{s.name}" in str(error) for s in program.statements) or not program.latents
    return "refused" if named else "unnamed"


def missing(program: PosteriorProgram, found: Verdict) -> str | None:
    """What a kind requires of its programs and a verdict lacks."""
    for entry in KINDS[program.kind].right:
        if found.entries.get(entry, "right") != "right":
            return f"{entry} is {found.entries[entry]}: {found.says[entry]}"
    for entry in KINDS[program.kind].refused:
        if found.entries.get(entry, "refused") != "refused":
            return f"{entry} is {found.entries[entry]}: {found.says[entry]}"
    return None if found.outcome in ("right", "refused") else f"{found.outcome}: {found.says}"


def survey(
    name: str, seeds: Iterable[int], by_turns: bool = False
) -> tuple[Counter, dict[str, Counter], list[str]]:
    """Of programs of a kind how often each outcome came, by program and by entry, and what is not
    as the kind requires. By turns a program is judged by every other entry."""
    outcomes, by_entry, lacking = Counter(), {entry: Counter() for entry in ENTRIES}, []
    for seed in seeds:
        program = posterior_program(name, seed)
        found = verdict(program, ENTRIES[seed % 2 :: 2] if by_turns else ENTRIES)
        outcomes[found.outcome] += 1
        for entry, outcome in found.entries.items():
            by_entry[entry][outcome] += 1
        lacks = missing(program, found)
        if lacks is not None:
            lacking.append(f"seed {seed}: {lacks}")
    return outcomes, by_entry, lacking


# The entries


def _apart(what: str, found: Any, wanted: Any, most: float) -> str | None:
    """A complaint where numbers differ, or are NaN."""
    found, wanted = (torch.as_tensor(np.asarray(v)).double().flatten() for v in (found, wanted))
    if found.shape != wanted.shape:
        return f"{what} has {found.numel()} numbers, and {wanted.numel()} are right"
    same = (found == wanted) | ((found - wanted).abs() <= most)
    return None if bool(same.all()) else f"{what} {found.tolist()} in place of {wanted.tolist()}"


def _loss(program: PosteriorProgram, reference: Reference | None) -> str | None:
    elbo = NestedIWAE(math.inf, program.imputations, estimator=Enumerate(), penalty=0.0)
    found = -float(elbo.loss(program, None, program.x, program.y))
    if reference is None:
        return "accepted"
    most = CLOSE + FARTHEST * reference.log_error if program.imputations > 1 else CLOSE
    return _apart("loss", found, reference.log_loss, most)


def _evidence(program: PosteriorProgram, reference: Reference | None) -> str | None:
    options: dict[str, Any] = {"imputations": program.imputations}
    if reference is not None and any(s.log_weights is not None for s in program.latents):
        options |= {"samples": _exact_draws(reference), "nodes": 40}
    found = log_marginal_likelihood(program, program.x, program.y, **options).log
    if reference is None:
        return "accepted"
    most = CLOSE + FARTHEST * reference.log_error if program.imputations > 1 else CLOSE
    return _apart("evidence", found, reference.log_evidence, 1e-6 if "nodes" in options else most)


def _loo(program: PosteriorProgram, reference: Reference | None) -> str | None:
    if reference is None:
        samples = {"intercept": torch.linspace(-1.0, 1.0, 50).double()}
        loo(program, program.x, program.y, samples)
        return "accepted"
    shared = [s for s in program.latents if s.above]
    draws = _exact_draws(reference) if shared else {}
    found = loo(program, program.x, program.y, draws, imputations=program.imputations)
    if reference.y.shape[-1] != len(program.x):
        return "accepted without a density for each row"
    if program.imputations > 1:
        most = CLOSE + FARTHEST * reference.log_error
    else:
        most = _error_of_draws(reference) if shared else CLOSE
    return _apart("loo", found.pointwise, reference.loo, most)


def _table(program: PosteriorProgram, reference: Reference | None) -> str | None:
    found = feature_evidence(program, program.x, program.y)
    if reference is None:
        return "accepted"
    if program.imputations > 1:  # It has one imputation a mask.
        return None
    (mask,) = program.latents
    values = reference.values[mask.name].reshape(reference.count, program.entries(mask), -1)
    wanted = {
        name: torch.tensordot(reference.weights(given_y), values.double(), 1).mean(0)
        for name, given_y in (("prior", False), ("posterior", True))
    }
    if program.apart:
        wanted["gain"] = torch.stack([_gain(reference, values[..., g]) for g in range(len(found))])
    for name, numbers in wanted.items():
        wrong = _apart(name, found[name].fillna(0.0), numbers.nan_to_num(0.0), CLOSE_MEAN)
        if wrong is not None:
            return wrong
    return None


def _gain(reference: Reference, kept: Tensor) -> Tensor:
    """The mean over rows of log p(y_n) − log p(y_n | z_n = 0), of a mask entry `(S, rows)`."""
    rows = []
    for n, whole in enumerate(reference.row_evidence):
        before = reference.before[kept[:, n] == 0]
        if bool(before.isneginf().all()):
            return torch.tensor(math.nan).double()
        both = before + reference.y[kept[:, n] == 0, n]
        rows.append(whole - both.logsumexp(0) + before.logsumexp(0))
    return torch.stack(rows).mean()


def _exact_draws(reference: Reference, count: int = 1000) -> dict[str, Tensor]:
    """Quantiles of the posterior of the latent before the particles."""
    (statement,) = [s for s in reference.program.latents if s.above]
    values = reference.values[statement.name][:, 0]
    order = values.argsort(stable=True)
    reached = reference.weights(True)[order].cumsum(0)
    places = (torch.arange(count).double() + 0.5) / count
    return {statement.name: values[order][torch.searchsorted(reached, places)]}


def _error_of_draws(reference: Reference) -> float:
    """Four standard errors of log 1/S Σ 1 / p(y_n | θ_s), the largest of a row."""
    (statement,) = [s for s in reference.program.latents if s.above]
    at = reference.values[statement.name][:, 0]
    errors = []
    every = at.unique()
    joint = torch.stack([reference.joint[at == one].logsumexp(0) for one in every]).softmax(0)
    for n in range(reference.y.shape[-1]):
        # The masks of a row are its own: p(y_n | θ) by the sum over them.
        log_p = torch.stack([
            (reference.prior[at == one] + reference.other[at == one] + reference.y[at == one, n])
            .logsumexp(0)
            - (reference.prior[at == one] + reference.other[at == one]).logsumexp(0)
            for one in every
        ])  # fmt: skip
        inverse = (-log_p).exp()
        mean = (joint * inverse).sum()
        errors.append(float(((joint * (inverse - mean) ** 2).sum() / 1000).sqrt() / mean))
    return FARTHEST * max(errors) + 1e-3


def _given_x(program: PosteriorProgram, reference: Reference | None) -> str | None:
    return _explained(program, reference, given_y=False)


def _given_y(program: PosteriorProgram, reference: Reference | None) -> str | None:
    return _explained(program, reference, given_y=True)


def _explained(program: PosteriorProgram, reference: Reference | None, given_y: bool) -> str | None:
    words: dict[str, Any] = {"proposals": math.inf, "imputations": program.imputations}
    if reference is None:
        words["samples"] = {"intercept": torch.linspace(-1.0, 1.0, 50).double()}
    arguments = (program.x, program.y) if given_y else (program.x,)
    draws = POSTERIOR_DRAWS if given_y else DRAWS
    found = explain(program, *arguments, draws=draws, **words)
    if reference is None:
        return "accepted"
    complaints = _complaints(program, reference, found, given_y)
    if complaints:
        # What is drawn may be off by chance, and never twice.
        again = explain(program, *arguments, draws=4 * draws, seed=1, **words)
        complaints &= _complaints(program, reference, again, given_y)
    return "; ".join(str(one) for one in complaints) or None


@dataclass(frozen=True)
class Complaint:
    """What is off; the numbers do not tell two complaints apart."""

    what: str
    numbers: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.what} {self.numbers}"


def _complaints(
    program: PosteriorProgram, reference: Reference, found: Any, given_y: bool
) -> set[Complaint]:
    return {
        *_means(program, reference, found, given_y),
        *_drawn(program, reference, found, given_y),
    }


def masks_of(program: PosteriorProgram) -> list[Statement]:
    """The latents of zeros and ones."""
    return [s for s in program.latents if s.support.is_floating_point() and not s.above]


def _is_required(mask: Statement) -> bool:
    """Whether an explanation must have a mask: a scalar one may be a class as well."""
    return _is_vector(mask) or mask.loop or mask.plate == "features"


def _array(found: Any, group: str, name: str) -> Any:
    return found[group][name] if group in _groups(found) and name in found[group] else None


def _groups(found: Any) -> list[str]:
    names = found.groups() if callable(found.groups) else found.groups
    return [name.strip("/") for name in names]


def _means(
    program: PosteriorProgram, reference: Reference, found: Any, given_y: bool
) -> Iterator[Complaint]:
    """Complaints about E[z | x], and E[z | x, y], of all sites, and about log p(y_n)."""
    masks = masks_of(program)
    values = reference.coordinates([s.name for s in masks])
    for after, mask in itertools.product((False, True)[: 1 + given_y], masks):
        name = mask.name
        suffix = "selection_probability" + "_given_y" * after
        array = _array(found, "sample_stats", f"{name}_{suffix}")
        if array is None:
            array = _array(found, "sample_stats", suffix)
            if array is not None and array.attrs.get("site", masks[0].name) != name:
                array = None
        if array is None:
            if _is_required(mask) and _draws_of(found, name, after) is None:
                yield Complaint(f"{name!r} has neither {suffix} nor draws")
            continue
        wanted = reference.weights(after) @ values[name]
        most = CLOSE_MEAN + torch.zeros_like(wanted)
        if program.imputations > 1 and after:
            most = most + FARTHEST * reference.mean_error(values[name], wanted)
        drawn = "draws" in str(array.attrs.get("source", ""))
        if drawn or not (after or reference.other_is_observed):
            draws = math.prod(np.shape(_array(found, "predictions", name))[:2])
            variance = reference.variance(mask, after, of_means=not drawn)
            most = most + FARTHEST * (variance / draws).sqrt()
        value = torch.as_tensor(np.asarray(array.values)).double().flatten()
        if value.shape != wanted.shape or not bool(((value - wanted).abs() <= most).all()):
            yield Complaint(
                f"{suffix} of {name!r}", f"{value.tolist()} in place of {wanted.tolist()}"
            )
    evidence = _array(found, "sample_stats", "log_evidence") if given_y else None
    if program.apart and evidence is not None:
        most_nats = 1e-5 + FARTHEST * reference.log_error if program.imputations > 1 else 1e-5
        wrong = _apart("", evidence.values, reference.row_evidence, most_nats)
        if wrong is not None:
            yield Complaint("log_evidence", wrong)


def _draws_of(found: Any, name: str, given_y: bool) -> Tensor | None:
    """Draws `(draws, entries × event)` of a site."""
    for group in ("posterior_of_rows", "posterior") if given_y else ("predictions", "posterior"):
        array = _array(found, group, name)
        if array is not None:
            value = torch.as_tensor(np.asarray(array.values)).double()
            return value.reshape(value.shape[0] * value.shape[1], -1)
    return None


def _drawn(
    program: PosteriorProgram, reference: Reference, found: Any, given_y: bool
) -> Iterator[Complaint]:
    """What draws are off: a mean of an entry, or of a product of two that are drawn together."""
    if program.imputations > 1:
        return
    named = [s for s in program.statements if s.kind == "deterministic"]
    if given_y:
        for statement in named:
            if _array(found, "posterior", statement.name) is None:
                yield Complaint(f"{statement.name!r} is not there")
                return
    statements = [*masks_of(program), *(named if given_y else ())]
    names = [s.name for s in statements]
    for after in (False, True)[: 1 + given_y]:
        every = reference.coordinates(names)
        present = {n: v for n in names if (v := _draws_of(found, n, after)) is not None}
        for name, draws in present.items():
            if draws.shape[-1] != every[name].shape[-1]:
                yield Complaint(
                    f"{name!r} is drawn in {draws.shape[-1]} of {every[name].shape[-1]} entries"
                )
                return
        for what, places in _products(program, statements):
            if any(name not in present for name, _ in places):
                continue
            drawn = torch.stack([present[n][:, i] for n, i in places]).prod(0)
            values = torch.stack([every[n][:, i] for n, i in places]).prod(0)
            chance = min(1.0, float(reference.weights(after) @ values))
            count = int(drawn.sum())
            tails = binom.cdf(count, len(drawn), chance), binom.sf(count - 1, len(drawn), chance)
            if not min(tails) >= TAIL / 2:
                yield Complaint(
                    f"{what} given {'x and y' if after else 'x'}",
                    f"{count} of {len(drawn)} draws, of probability {chance}",
                )


def _products(
    program: PosteriorProgram, statements: list[Statement]
) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Entries of sites, and pairs of them that stand in no two rows."""
    places = []
    for statement in statements:
        event = statement.support.shape[-1] if _is_vector(statement) else 1
        for entry in range(program.entries(statement)):
            row = entry if statement.plate == "data" else None
            places += [(statement.name, entry * event + i, row) for i in range(event)]
    for name, place, _ in places:
        yield f"{name!r} at {place}", [(name, place)]
    pairs = [
        (one, two)
        for one, two in itertools.combinations(places, 2)
        if one[2] == two[2] or None in (one[2], two[2]) or not program.apart
    ]
    for one, two in pairs[:: max(1, len(pairs) // 12)]:
        yield f"{one[0]!r} at {one[1]} times {two[0]!r} at {two[1]}", [one[:2], two[:2]]


def _is_vector(statement: Statement) -> bool:
    return statement.support is not None and statement.support.dim() > 1


CHECKS: dict[str, Callable[[PosteriorProgram, Reference | None], str | None]] = {
    LOSS: _loss, EVIDENCE: _evidence, GIVEN_X: _given_x, GIVEN_Y: _given_y, LOO: _loo,
    TABLE: _table,
}  # fmt: skip
