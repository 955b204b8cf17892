"""One odd program: refused in a sentence of ours that names a site, or equal to brute force."""

import itertools
import math
import traceback
from dataclasses import dataclass, replace

import pyro
import torch
from torch import Tensor

from lexppl.explanation import explain
from lexppl.inference import Enumerate, LeaveOneOut, NestedIWAE, ScoreFunction
from tests.programs.brute_force import Run, UndefinedError
from tests.programs.enumeration import forced, gradients_of
from tests.programs.odd_programs import IMPUTATIONS, MASKS, OddProgram

MOST_DRAWS, MOST_LISTED = 256, 4096
PENALTY = 0.7
CLOSE = 1e-8
DRAWS, FARTHEST, MOST_EXPLAINED = 1000, 0.15, 32
"""Draws of `explain`, the total variation of so many from at most so many values: the expectation
is below .05, and the deviation below .016."""


@dataclass(frozen=True)
class Verdict:
    """What came of a program: "refused", "right", "unnamed", "raw", "wrong" or "large"."""

    outcome: str
    says: str = ""


def objective(program: OddProgram, estimator=None):
    return NestedIWAE(
        program.masks, program.imputations, samples=program.samples, penalty=PENALTY,
        estimator=estimator or _estimator(program),
    )  # fmt: skip


def _estimator(program: OddProgram):
    """One that the program's particles allow, for any distribution."""
    return LeaveOneOut() if program.masks * program.samples > 1 else ScoreFunction()


def verdict(program: OddProgram, seed: int = 0, gradient: bool = True) -> Verdict:
    """Compare a program's bound with brute force.

    Args:
        program: odd or right.
        seed: of the draws of the first look.
        gradient: whether gradients are compared too.
    """
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        refusal = first_look(program)
        if refusal is not None:
            return refusal
        try:
            return compared(program, gradient)
        except UndefinedError as error:
            return Verdict("wrong", f"accepted, and means nothing: {error}")
        except OverflowError as error:
            return Verdict("large", str(error))


def raised_by_lexppl(error: BaseException) -> bool:
    """Whether an error's last frame is of one of the package's modules, in whatever folder the
    package lies and other libraries do."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return frame.f_globals["__name__"].partition(".")[0] == "lexppl"


def first_look(program: OddProgram) -> Verdict | None:
    """The program's refusal, with all of Pyro's checks; None where there is none."""
    try:
        objective(program).differentiable_loss(*program.functions, program.parameters())
    except Exception as error:
        ours = raised_by_lexppl(error)
        names = {s.name for s in (*program.model, *program.guide)}
        named = any(f"'{name}" in str(error) for name in names)
        if not ours or not isinstance(error, ValueError):
            return Verdict("raw", f"{type(error).__name__}: {error}")
        return Verdict("refused" if named else "unnamed", str(error))
    return None


def compared(program: OddProgram, gradient: bool) -> Verdict:
    """The verdict on a program that is accepted."""
    whole = replace(program, subsample={}, subset={})
    functions, p = whole.functions, program.parameters()
    leaves = {name: value.requires_grad_() for name, value in p.items()}
    with torch.no_grad():
        one = Run(functions, p, 1, 1, MOST_LISTED)
        evidence = one.log_evidence()
        if program.masks * program.imputations > 1:
            plain = Run(_unscaled(whole).functions, p, 1, 1, MOST_LISTED) if one.scaled else one
            found, wanted = plain.limits()
            if abs(found - wanted) > CLOSE:
                return Verdict("wrong", f"tends to {found:.6f}, and log p(y) is {wanted:.6f}")
        for check in (listed, explained):
            complaint = check(whole, one)
            if complaint is not None:
                return Verdict("wrong", complaint)
    run = Run(functions, leaves, program.masks, program.imputations, MOST_LISTED)
    value = run.bound()
    if not run.scaled:
        if float(value.detach()) > float(evidence) + CLOSE:
            return Verdict("wrong", f"bound {float(value.detach())} above {float(evidence)}")
        with torch.no_grad():
            for name in ("masks", "imputations"):
                if getattr(program, name) > 1:
                    sizes = {"masks": program.masks, "imputations": program.imputations, name: 1}
                    fewer = float(Run(functions, p, **sizes, most=MOST_LISTED).bound())
                    if float(value.detach()) <= fewer + 1e-10 and fewer < wanted - CLOSE:
                        return Verdict("wrong", f"{name}={getattr(program, name)} do nothing")
    value = run.bound(PENALTY)
    particles = program.masks * program.samples
    draws = Run(functions, p, particles, program.imputations, MOST_LISTED).draws
    if draws > MOST_DRAWS:
        return Verdict("large", f"{draws} draws")
    expectation, slopes = of_all_draws(program, gradient)
    if abs(float(expectation - value.detach())) > CLOSE:
        return Verdict("wrong", f"value {expectation:.6f} in place of {float(value.detach()):.6f}")
    if gradient and value.requires_grad:
        true = torch.autograd.grad(value, list(leaves.values()), allow_unused=True)
        # Copies of the program that draw alike judge what is drawn outside by no difference.
        alike = {f"q_{s.name}" for s in program.guide if "mask_particles" not in s.plates}
        for name, slope in zip(leaves, true, strict=True):
            if name in alike:
                continue
            slope = torch.zeros_like(leaves[name]) if slope is None else slope
            if float((slopes[name] - slope).abs().max()) > CLOSE:
                return Verdict("wrong", f"gradient of {name} {slopes[name]} in place of {slope}")
    return Verdict("right")


def listed(program: OddProgram, one: Run) -> str | None:
    """Where the latents can be listed, the bound of all of them is that of many masks."""
    drawn = [s for s in program.model if s.kind == "latent" and IMPUTATIONS in s.plates]
    if program.masks * program.imputations == 1 or drawn or one.scaled:
        return None
    elbo = NestedIWAE(math.inf, estimator=Enumerate(), penalty=0.0)
    try:
        value = -float(elbo.differentiable_loss(*program.functions, program.parameters()))
    except ValueError:
        return None
    wanted = one.limits()[1]
    return None if abs(value - wanted) < CLOSE else f"listed {value:.6f}, and it is {wanted:.6f}"


def explained(program: OddProgram, one: Run) -> str | None:
    """What `explain` gives of masks given y, from all of them, against p(z | y): each mean, and the
    total variation of the draws. None where it refuses, or where latents are not masks alone."""
    sites = [s for s in program.model if s.kind == "latent"]
    if not all(s.entries and not s.dropped_event and MASKS in s.plates for s in sites):
        return None
    if (
        not one.values
        or one.draws > MOST_EXPLAINED
        or any(d is None for d in program.dims.values())
    ):
        return None
    rows = torch.arange(program.sizes["data"]).double()
    x = torch.stack([rows] + [0 * rows] * (max(s.entries for s in sites) - 1), -1)
    node = one.model.get("y")
    if node is None or node["value"].numel() != len(x):
        return None
    model, guide = program.of_rows
    words = {"guide": guide, "proposals": math.inf, "draws": DRAWS}
    try:
        found = explain(model, x, node["value"].reshape(-1), **words)
    except ValueError as error:
        return None if raised_by_lexppl(error) else f"explain ends with {error!r}"
    posterior = one.posterior()
    joint: list[Tensor] = []
    for site in sites:
        values = one.values[site.name].reshape(one.draws, -1)
        group = next(g for g in ("posterior_of_rows", "posterior") if _has(found, g, site.name))
        drawn = torch.as_tensor(found[group][site.name].values[0]).double().reshape(DRAWS, -1)
        if drawn.shape[-1] != values.shape[-1]:
            return f"explain gives {site.name!r} in {drawn.shape[-1]} of {values.shape[-1]} entries"
        if float((drawn.mean(0) - posterior @ values).abs().max()) > FARTHEST:
            return f"explain has {site.name!r} at {drawn.mean(0)}, and it is {posterior @ values}"
        joint.append(drawn)
        joint.append(values)
    drawn, values = torch.cat(joint[::2], -1), torch.cat(joint[1::2], -1)
    counts = (drawn.unsqueeze(1) == values).all(-1).double().mean(0)
    distance = 0.5 * float((counts - posterior).abs().sum())
    return None if distance < FARTHEST else f"explain is {distance:.3f} away in total variation"


def _has(found, group, name):
    return group in found and name in found[group]


def _unscaled(program: OddProgram) -> OddProgram:
    model, guide = (
        tuple(replace(s, scale=None) for s in side) for side in (program.model, program.guide)
    )
    return replace(program, model=model, guide=guide)


def of_all_draws(program: OddProgram, gradient: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """The library's value, and gradient if wanted, over all its draws, and all rows that its plates
    draw."""
    subsets: list[dict] = [{}]
    if program.subsample:
        ((name, size),) = program.subsample.items()
        subsets = [{name: s} for s in itertools.combinations(range(program.sizes[name]), size)]
    particles = program.masks * program.samples
    score = particles == 1 or len(program.model) % 2
    elbo = objective(program, ScoreFunction(baseline=-0.8) if score else LeaveOneOut())
    total = torch.zeros((), dtype=torch.double)
    slopes = {name: torch.zeros_like(value) for name, value in program.parameters().items()}
    for subset in subsets:
        functions = replace(program, subsample={}, subset=subset).functions
        p = program.parameters()
        with torch.no_grad():
            run = Run(functions, p, particles, program.imputations, MOST_LISTED)
            weights = run.log_probability().exp() / len(subsets)
        with pyro.validation_enabled(False), torch.set_grad_enabled(gradient):
            for place, weight in enumerate(weights):
                values = {name: value[place] for name, value in run.values.items()}
                leaves = {name: v.detach().requires_grad_() for name, v in p.items()}
                model, guide = (forced(one, values) for one in functions)
                value = -elbo.differentiable_loss(model, guide, leaves)
                total = total + weight * value.detach()
                for name, part in gradients_of(value, leaves).items():
                    slopes[name] = slopes[name] + weight * part
    return total, slopes
