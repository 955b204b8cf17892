"""A few rows, and what a system with Bernoulli masks is worth on them by summing over all masks."""

from itertools import product

import torch

from lexppl.inference.contexts import keep_parameters_local, seeded
from lexppl.models.predictor import table_predictor

X = torch.tensor([[0.8, -1.1, 0.4], [-0.3, 0.9, 1.2]], dtype=torch.float64)
Y = torch.tensor([1, 0])
BLACK_BOX = torch.tensor([[0.2, 0.8], [0.7, 0.3]], dtype=torch.float64)
MASKS = torch.tensor(list(product((0.0, 1.0), repeat=3)), dtype=torch.float64)
SIZES = {"hidden": (4,), "predictor_hidden": (5,)}


def stages_of(system, seed=0):
    """The system's stages in double precision, with settled weights."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stages = system.build()
    for stage in stages:
        for term in stage.terms:
            for part in (term.model, term.guide):
                if isinstance(part, torch.nn.Module):
                    part.double().train()
                    keep_parameters_local(part)
    return stages


def log_selection(selector, x=X):
    """log π(s | x) of every mask s, `(8, B)`."""
    logits = selector.network(x)
    on, off = torch.nn.functional.logsigmoid(logits), torch.nn.functional.logsigmoid(-logits)
    return (MASKS.unsqueeze(1) * on + (1 - MASKS.unsqueeze(1)) * off).sum(-1)


def log_predictions(predictor, keep=MASKS, x=X, y=Y):
    """log q(y | x ⊙ s), or Σ_c p_m(c | x) log q(c | x ⊙ s): `(8, B)`."""
    rows = keep.unsqueeze(1) * x
    log_q = predictor.network(rows.flatten(0, 1)).unflatten(0, rows.shape[:2]).log_softmax(-1)
    if y.dim() == 2:
        return (y * log_q).sum(-1)
    return log_q.gather(-1, y.expand(len(keep), -1).unsqueeze(-1)).squeeze(-1)


def gradients_of(value, module):
    found = torch.autograd.grad(value, list(module.parameters()), retain_graph=True)
    return torch.cat([g.flatten() for g in found])


def interacting(features, classes):
    """A predictor in double precision whose features interact."""
    with seeded(3):
        given = table_predictor(features, classes, (8,)).double()
    for parameter in given.parameters():
        parameter.data.mul_(2.0)
    return given


def minimise(module, loss):
    """Put a module's parameters at the minimum of a loss."""
    optimizer = torch.optim.LBFGS(
        module.parameters(), max_iter=500, tolerance_grad=1e-13, tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    optimizer.step(closure)
