"""Importances by SHAP, LIME, gradients and permutation, and what these methods share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from lexppl.argument_checks import int_at_least, refuse_not_finite, shaped
from lexppl.distributions.support import distribution_targets
from lexppl.evaluation.evalx import FittedPredictor
from lexppl.extras import extra_library
from lexppl.inference.contexts import seeded
from lexppl.models import Grouping
from lexppl.models.black_box import BlackBox, Output, black_box
from lexppl.models.likelihoods import Likelihood
from lexppl.threads import evaluating


def library(module: str) -> Any:
    """A library of the `compare` extra; ``ImportError`` says how to get it."""
    return extra_library(module, "compare")


def check_tables(grouping: Grouping | None, **tables: Tensor) -> None:
    """Refuse tables `(N, D)`, by argument, unlike the first or the grouping's features."""
    first_name, first = next(iter(tables.items()))
    for name, table in tables.items():
        if not isinstance(table, Tensor) or not table.is_floating_point():
            kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
            raise TypeError(f"{name} must be a floating-point tensor; it is {kind}")
        shaped(name, table, "N D", filled=True)
        refuse_not_finite(name, table)
        kinds = [f"{t.shape[1]} features, {t.dtype}, on {t.device}" for t in (table, first)]
        if kinds[0] != kinds[1]:
            raise ValueError(f"{name} has {kinds[0]}, and {first_name} {kinds[1]}; convert one")
    if grouping is not None and grouping.features != first.shape[1]:
        raise ValueError(
            f"grouping is of {grouping.features} features; {first_name} has {first.shape[1]}"
        )


def grouped_importances(attributions: Tensor, grouping: Grouping | None) -> Tensor:
    """Importances of mask entries `(B, G)`, `I_g = Σ_{d in g} |a_d|` of attributions `(B, D)`."""
    return attributions.abs() if grouping is None else grouping.sums(attributions.abs())


def black_box_of(model: Any) -> BlackBox:
    """A black box, a full predictor, or what `black_box` takes, as a black box."""
    if isinstance(model, BlackBox):
        return model
    return black_box(model.predictor if isinstance(model, FittedPredictor) else model)


def numpy_model(box: BlackBox, like: Tensor) -> Callable[[np.ndarray], np.ndarray]:
    """A black box from arrays `(n, D)` to probabilities `(n, C)`, or responses `(n,)`, float64."""

    def outputs(rows: np.ndarray) -> np.ndarray:
        x = torch.as_tensor(np.ascontiguousarray(rows)).to(like)
        return box.targets(x).double().cpu().numpy()

    return outputs


def array_of(x: Tensor) -> np.ndarray:
    """Rows as a float64 array, as the libraries compute."""
    return x.detach().double().cpu().numpy()


def shap_importances(
    model: Any,
    x: Tensor,
    background: Tensor,
    *,
    grouping: Grouping | None = None,
    background_rows: int = 100,
    permutations: int = 10,
    seed: int = 0,
) -> Tensor:
    """Absolute SHAP values `(B, G)` of f, by `shap.explainers.Permutation` over M background rows:

        φ_d = E_π[v(S_π ∪ d) − v(S_π)],    v(S) = 1/M Σ_m f(x_S, r^m_{¬S}),

    interventional: hidden features are those of a background row (Lundberg and Lee 2017).
    """
    check_tables(grouping, x=x, background=background)
    background_rows = int_at_least("background_rows", background_rows)
    permutations = int_at_least("permutations", permutations)
    box = black_box_of(model)
    shap = library("shap")
    with seeded(int_at_least("seed", seed, 0), x.device):
        chosen = background[torch.randperm(len(background))[:background_rows].to(x.device)]
        masker = shap.maskers.Independent(array_of(chosen), max_samples=len(chosen))
        explainer = shap.explainers.Permutation(numpy_model(box, like=x), masker, seed=seed % 2**32)
        evaluations = permutations * (2 * x.shape[1] + 1)
        explained = explainer(array_of(x), max_evals=evaluations, silent=True)
        values = torch.from_numpy(explained.values)
        if values.dim() == 3:
            likeliest = box.targets(x).cpu().argmax(1)
            values = values[torch.arange(len(values)), :, likeliest]
    return grouped_importances(values.to(x), grouping)


def permutation_importances(
    model: Any,
    x: Tensor,
    scored: tuple[Tensor, Tensor],
    *,
    grouping: Grouping | None = None,
    repeats: int = 5,
    seed: int = 0,
) -> Tensor:
    """Permutation importances of a model, `(B, G)`, the same for every row, by the mean
    log-likelihood in nats or minus the mean squared error (Breiman 2001; Fisher, Rudin, Dominici
    2019):

        I_g = score(x, y) − E_π[score(x with the columns of g shuffled by π, y)].
    """
    rows, y = scored
    check_tables(grouping, x=x, scored=rows)
    repeats = int_at_least("repeats", repeats)
    box = black_box_of(model)
    shaped("y of scored", y, rows.shape[:1])
    if y.is_floating_point() != (box.task == "regression"):
        kind = "responses" if box.task == "regression" else "labels"
        raise ValueError(f"scored must have {kind}; they are {y.dtype}")
    groups = Grouping.identity(rows.shape[1]) if grouping is None else grouping
    generator = torch.Generator().manual_seed(int_at_least("seed", seed, 0))
    losses = torch.zeros(groups.entries, dtype=torch.float64)
    for entry in range(groups.entries):
        columns = groups.index.to(rows.device) == entry
        for _ in range(repeats):
            order = torch.randperm(len(rows), generator=generator).to(rows.device)
            losses[entry] -= _score(box, torch.where(columns, rows[order], rows), y)
    losses = losses / repeats + _score(box, rows, y)
    return losses.to(x).expand(len(x), -1).clone()


def _score(box: BlackBox, rows: Tensor, y: Tensor) -> float:
    outputs = box.targets(rows).double()
    if outputs.dim() == 1:
        return -float((outputs - y).square().mean())
    likelihood = outputs.gather(1, y.long()[:, None]).clamp(min=torch.finfo(outputs.dtype).tiny)
    return float(likelihood.log().mean())


def lime_importances(
    model: Any,
    x: Tensor,
    background: Tensor,
    *,
    grouping: Grouping | None = None,
    samples: int = 5000,
    seed: int = 0,
) -> Tensor:
    """Absolute weights `(B, G)` by `LimeTabularExplainer` at its defaults; a column of at most two
    values in the background is a category (Ribeiro, Singh, Guestrin 2016)."""
    check_tables(grouping, x=x, background=background)
    samples = int_at_least("samples", samples)
    box = black_box_of(model)
    lime_tabular = library("lime.lime_tabular")
    outputs, rows = numpy_model(box, like=x), array_of(x)
    table = array_of(background)
    two_valued = ((table == table.min(0)) | (table == table.max(0))).all(0)
    of_labels = box.task == "classification"
    weights_of_rows = np.zeros(rows.shape)
    with seeded(int_at_least("seed", seed, 0), x.device):
        explainer = lime_tabular.LimeTabularExplainer(
            table,
            mode=box.task,
            categorical_features=np.flatnonzero(two_valued).tolist(),
            random_state=seed % 2**32,
        )
        chosen = box.targets(x).argmax(1).tolist() if of_labels else [1] * len(x)
        # The library explains one row at a time.
        for n, label in enumerate(chosen):
            explained = explainer.explain_instance(
                rows[n], outputs, labels=(label,), num_features=x.shape[1], num_samples=samples
            )
            columns, weights = zip(*explained.local_exp[label], strict=True)
            weights_of_rows[n, list(columns)] = weights
    return grouped_importances(torch.from_numpy(weights_of_rows).to(x), grouping)


GRADIENTS: Mapping[str, str] = {
    "saliency": "Saliency",
    "gradient_x_input": "InputXGradient",
    "integrated_gradients": "IntegratedGradients",
}
ROWS_AT_ONCE = 500
"""Rows whose gradients are held at once; integrated gradients holds as many for each step."""


def gradient_importances(
    method: str,
    model: Any,
    x: Tensor,
    *,
    output: Output | None = None,
    grouping: Grouping | None = None,
    baseline: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Absolute attributions `(B, G)` by gradients of f, the probability of the row's likeliest
    class or the response, by Captum:

        saliency              |∂f(x)/∂x_d|
        gradient_x_input      |x_d ∂f(x)/∂x_d|
        integrated_gradients  |x_d − b_d| · |∫_0^1 ∂f(b + t (x − b))/∂x_d dt|,  `baseline` b or 0.

    Source: Simonyan, Vedaldi, Zisserman 2014; Shrikumar et al. 2016; Sundararajan, Taly, Yan 2017.
    """
    check_tables(grouping, x=x)
    module = model.predictor if isinstance(model, FittedPredictor) else model
    outputs = _differentiable(module, output)
    if baseline is not None:
        shaped("baseline", baseline, x.shape[1:])
    attribution = getattr(library("captum.attr"), GRADIENTS[method])(outputs)
    parts = []
    with evaluating(module), torch.enable_grad():
        for chunk in x.detach().split(ROWS_AT_ONCE):
            with torch.no_grad():
                values = outputs(chunk)
            of_chunk = {"target": values.argmax(1) if values.dim() == 2 else None, **options}
            if baseline is not None:
                of_chunk["baselines"] = baseline.to(x).expand_as(chunk)
            rows = chunk.clone().requires_grad_()
            parts.append(attribution.attribute(rows, **of_chunk).detach().to(x))
    return grouped_importances(torch.cat(parts), grouping)


def _differentiable(module: Any, output: Output | None) -> Callable[[Tensor], Tensor]:
    """Probabilities `(B, C)` or responses `(B,)` of a torch predictor, as a function of its rows;
    refuses what has no gradient, or does not say what it returns."""
    name = type(module).__name__
    if not isinstance(module, nn.Module):
        raise TypeError(
            "attribution by gradients needs a torch predictor, an nn.Module such as "
            f"lexppl.models.Predictor; it is {name}. Other models have shap, lime and permutation"
        )
    has_likelihood = isinstance(getattr(module, "likelihood", None), Likelihood)
    if output not in (None, *get_args(Output)) or has_likelihood == (output is not None):
        raise ValueError(
            f"output must be one of {get_args(Output)}, what {name} returns, and left out of a "
            f"predictor with a likelihood; it is {output!r}"
        )

    def outputs(rows: Tensor) -> Tensor:
        answers = module(rows)
        if has_likelihood:
            return distribution_targets(answers)
        if answers.dim() == 2 and answers.shape[1] > 1:
            return answers.softmax(1) if output == "logits" else answers
        answers = answers.reshape(len(answers))
        if output == "response":
            return answers
        of_one = answers.sigmoid() if output == "logits" else answers
        return torch.stack([1.0 - of_one, of_one], 1)

    return outputs
