"""`lexppl evaluate`: fit an explainer on a synthetic set and judge it against the truth."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lexppl.cli.options.plan_options import device_of, plan_of
from lexppl.cli.options.table import EVALUATED_BY
from lexppl.cli.terminal import INTERRUPTED, json_output, show, show_progress, text_table, warn
from lexppl.data import Dataset, synthetic
from lexppl.data.stratification import training_and_validation
from lexppl.data.synthetic import synthetic_set
from lexppl.evaluation.mask_scores import selection_scores
from lexppl.evaluation.oracle import Oracle, oracle_gaps
from lexppl.evaluation.prediction import prediction_scores, predictive
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import mask_means, masks_of
from lexppl.inference import FitResult, entropy_unit
from lexppl.report.fit_warnings import collapse_messages, early_message
from lexppl.report.results.scores import PREDICTED_MASKS
from lexppl.systems.fit_plan import FitPlan
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.table_fit import fit_table

SELECTION = (
    ("tpr", "TPR: share of the relevant features that are selected"),
    ("fdr", "FDR: share of the selected features that are not relevant"),
    ("fpr", "FPR: share of the other features that are selected"),
    ("mcc", "MCC: Matthews correlation of selected and relevant"),
    ("control_flow", "control flow: how often x11 is selected"),
    ("mean_size", "mean number of selected features"),
)
PREDICTION = (
    ("accuracy", "accuracy"),
    ("log_likelihood", "log-likelihood, nats a row"),
    ("oracle_log_likelihood", "log-likelihood of the oracle, given the truth"),
    ("gap", "gap to the oracle"),
)


Figures = dict[str, list[dict[str, float]]]  # By kind, of each replicate, by name


def run_evaluate(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl evaluate`; the exit code, 0, or 130 if interrupted.

    Raises:
        KeyboardInterrupt: before there was anything to judge.
    """
    device = device_of(options.device)
    with json_output(options, command) as write:
        data = synthetic(options.data, options.rows, options.seed).to(device)
        # The same seed would give the same rows.
        test = synthetic(options.data, options.rows, options.seed + 1_000_003).to(device)
        labels = data.y.cpu().numpy()
        places = training_and_validation(labels, options.valid_share, options.seed)
        rows = EncodedRows.of(data, *places)
        unit = entropy_unit(rows.train[1], len(data.class_names or ()))
        plan = plan_of(options, len(rows.train[0]), data, unit=unit, **EVALUATED_BY)
        show_progress(f"fitting on {options.data}", options.quiet)
        fitted = fit_table(plan, rows, progress=not options.quiet)
        plan, result = fitted.plan, fitted.result
        if result.interrupted and len(result.history) == 0:
            raise KeyboardInterrupt
        epochs, messages = len(result.history), collapse_messages(result.collapse)
        if result.interrupted:
            messages.insert(0, f"interrupted after {epochs} epochs")
        else:
            has_penalty = plan.penalty is not None
            messages += early_message(result.best_epoch.tolist(), epochs, has_penalty)
        messages[:0] = [fitted.behind] * bool(fitted.behind)
        for message in messages:
            warn(message)
        show_progress("judging", options.quiet)
        figures = judge(result, test, options.data, options.draws, options.seed)
        write(_description(options, plan, result, figures))
    _print(options, plan, result, figures)
    return INTERRUPTED if result.interrupted else 0


def judge(result: FitResult, test: Dataset, name: str, draws: int, seed: int) -> Figures:
    """Figures of each replicate: of selection by mask draws, and by features more likely kept than
    not where a row may keep any number; of prediction."""
    if test.truth is None:
        raise ValueError(f"{name} has no truth to judge by")
    distribution = synthetic_set(name)
    masks_a_row: dict[str, Any] = {"masks": PREDICTED_MASKS, "seed": seed}
    posterior = explanation_tree(result, test.x, draws=draws, seed=seed)
    probability = mask_means(posterior)
    masks = masks_of(posterior)[probability.attrs["site"]].values
    select = partial(_selection, truth=test.truth, control=distribution.control)
    likely = torch.from_numpy(probability.values) > 0.5
    is_fixed = bool((masks.sum(-1) == masks.sum(-1).flat[0]).all())
    predictions = predictive(result, test.x, **masks_a_row)
    oracle = Oracle(distribution)
    gaps = oracle_gaps(result, oracle, test.x, test.y, truth=test.truth, **masks_a_row)
    prediction = [
        {
            "accuracy": prediction_scores(p, test.y).accuracy or 0.0,
            "log_likelihood": gap.explainer,
            "oracle_log_likelihood": gap.oracle_truth,
            "gap": gap.total,
        }
        for p, gap in zip(predictions, gaps, strict=True)
    ]
    return {
        "mask_draws": [select(torch.from_numpy(chain)) for chain in masks],
        "likely_masks": [] if is_fixed else [select(chain) for chain in likely],
        "prediction": prediction,
    }


def _selection(masks: Tensor, truth: Tensor, control: int | None) -> dict[str, float]:
    scores = asdict(selection_scores(masks.to(truth.device), truth, control))
    return {name: scores[name] for name, _ in SELECTION if scores[name] is not None}


def _description(
    options: argparse.Namespace, plan: FitPlan, result: FitResult, figures: Figures
) -> dict[str, Any]:
    settings = ("k", "penalty", "imputer", "replicates", "masks", "batch_size", "learning_rate")
    return {
        "set": options.data,
        "rows": options.rows,
        **{name: getattr(plan, name) for name in (*settings, "seed")},
        "epochs": len(result.history),
        "seconds": round(float(result.history.seconds.sum()), 3),
        "collapse": result.collapse,
        "interrupted": result.interrupted,
        "by_replicate": figures,
    }


def _print(options: argparse.Namespace, plan: FitPlan, result: FitResult, figures: Figures) -> None:
    show(
        f"{options.data}: {options.rows} rows, as many to test on; keeps {plan.law}; "
        f"{plan.imputer} imputation; {len(result.history)} epochs in "
        f"{float(result.history.seconds.sum()):.0f} s; seed {plan.seed}"
    )
    likely = figures["likely_masks"]
    columns = [figures["mask_draws"], *([likely] if likely else [])]
    rows = [
        [label, *(_mean(column, name) for column in columns)]
        for name, label in SELECTION
        if name in figures["mask_draws"][0]
    ]
    show(f"\n{text_table(['selection', 'mask draws', 'p > ½'][: len(columns) + 1], rows)}")
    rows = [[label, _mean(figures["prediction"], name)] for name, label in PREDICTION]
    show(f"\n{text_table(['prediction', ''], rows)}")
    if plan.replicates > 1:
        show(f"\n  means of {plan.replicates} replicates ± their standard deviation")
    if options.out is not None:
        show(f"\nWritten to {options.out}")


def _mean(scores: Sequence[dict[str, float]], name: str) -> str:
    values = [score[name] for score in scores]
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"
