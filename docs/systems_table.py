"""The registered systems as rows of one table: `python docs/systems_table.py`."""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributions import Independent

from lexppl.choices.methods import METHODS
from lexppl.effects import PENALTY
from lexppl.inference import LossTerm, NestedIWAE, Stage
from lexppl.inference.contexts import keep_parameters_local, program_settings, seeded
from lexppl.inference.objective.program import ParticleProgram, ParticleTrace
from lexppl.models.predictor import table_predictor
from lexppl.systems import system_for

COLUMNS = (
    "system",
    "mask distribution",
    "hidden features",
    "θ learns from",
    "y is",
    "bound",
    "estimator",
    "penalty",
)
FEATURES, CLASSES, ROWS = 4, 2, 3
WIDTHS = (4,)


@dataclass(frozen=True)
class _Built:
    """A small one of each system, and a run of its explainer."""

    stages: list[Stage]
    run: ParticleTrace

    @property
    def explainer(self) -> LossTerm:
        return self.stages[-1].terms[0]


def systems_table() -> str:
    """The table in Markdown.

    Example:
        >>> print(systems_table().splitlines()[0][:37])
        | system | mask distribution | hidden
    """
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(_row(name) for name in METHODS)]
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _row(name: str) -> tuple[str, ...]:
    built = _build(name)
    objective = built.explainer.objective
    if not isinstance(objective, NestedIWAE):
        raise TypeError(f"{name} has no nested bound")
    return (
        f"`{name}`",
        _masks(built.run),
        _hidden(built.explainer.model),
        _learns_from(built),
        "the black box's output" if METHODS[name].explains_model else "labels, or a black box's",
        f"L = {objective.masks}, K = {objective.imputations}, S = {objective.samples}",
        type(objective.estimator).__name__,
        ", ".join(_penalties(built.run)) or "none",
    )


def _build(name: str) -> _Built:
    method = METHODS[name]
    with seeded(0), program_settings(validate=False):
        settings = dict(
            features=FEATURES,
            classes=CLASSES,
            k=2 if method.needs("k") else None,
            black_box=table_predictor(FEATURES, CLASSES, WIDTHS),
            hidden=WIDTHS,
            predictor_hidden=WIDTHS,
        )
        stages = list(system_for(method, settings).build())
        term = stages[-1].terms[0]
        if isinstance(term.model, nn.Module):
            keep_parameters_local(term.model)
        rows = (torch.zeros(ROWS, FEATURES), torch.full((ROWS, CLASSES), 1 / CLASSES))
        with torch.no_grad():
            run = ParticleProgram(term.model, term.guide, rows).run(2)
    return _Built(stages, run)


def _masks(run: ParticleTrace) -> str:
    """The distribution of the masks, of a Delta that of the latent that it holds."""
    names = []
    outside = [site for site in run.guide_sites.values() if not site.in_particles]
    for site in (*outside, *run.mask_sites):
        distribution = (
            site.distribution.base_dist
            if isinstance(site.distribution, Independent)
            else site.distribution
        )
        kind = type(distribution).__name__
        names.append("deterministic" if kind == "Delta" and not outside else kind)
    return ", ".join(dict.fromkeys(n for n in names if n not in ("Delta", "ChosenMask")))


def _hidden(model: Any) -> str:
    imputer = getattr(model, "imputer", None)
    if imputer is None:
        return "none are"
    value = getattr(imputer, "value", None)
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return f"{float(value):g}"
    return type(imputer).__name__


def _learns_from(built: _Built) -> str:
    """Whether the explainer's own term moves its predictor, or another term or stage does."""
    model = built.explainer.model
    predictor = getattr(model, "predictor", getattr(model, "surrogate", None))
    learned = set() if predictor is None else {id(p) for p in predictor.parameters()}
    if predictor is None:
        return "the same loss"
    if not any(p.requires_grad for p in predictor.parameters()):
        return "nothing: it is given"
    if learned & _moved(built.explainer):
        others = [t for s in built.stages for t in s.terms if t is not built.explainer]
        if any(learned & _moved(term) for term in others):
            return "the same masks, jointly, and random ones"
        return "the same masks, jointly"
    return "random masks, in a term of its own"


def _moved(term: LossTerm) -> set[int]:
    parts = term.learns if term.learns is not None else (term.model, term.guide)
    return {id(p) for part in parts if isinstance(part, nn.Module) for p in part.parameters()}


def _penalties(run: ParticleTrace) -> list[str]:
    names = [name for name, site in run.sites.items() if site.infer.get(PENALTY)]
    closed = [name for name, site in run.guide_sites.items() if site.infer.get("closed_kl")]
    return names + [f"KL of {name}" for name in closed]


if __name__ == "__main__":
    sys.stdout.write(systems_table())
