"""`lexppl explain`: fit an explainer on a data set and write what it found."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.atomic_output import output_folder
from lexppl.cli.black_box_file import black_box_targets, load_black_box
from lexppl.cli.errors import UsageError
from lexppl.cli.exit_codes import INTERRUPTED
from lexppl.cli.findings import ReportData
from lexppl.cli.fitting import (
    FitSettings,
    check_size,
    device_of,
    fit_explainer,
    fit_full_predictor,
    plan_of,
    regime_of,
    targets_of,
)
from lexppl.cli.judging import (
    Judgement,
    ScoreRow,
    SizeCurve,
    agreement,
    fit_judge,
    judge_black_box,
    judge_by_evalx,
    judge_explainer,
    judge_full,
)
from lexppl.cli.messages import collapse_messages, early_message, tell, warn
from lexppl.cli.ranked import ranked_features
from lexppl.cli.report import write_report
from lexppl.cli.source import LoadedTable, Splits, divide, read_source
from lexppl.cli.tables import score_cells, text_table
from lexppl.cli.threads import one_thread
from lexppl.evaluation.refits.fitted_predictor import FittedPredictor
from lexppl.explanation import explain, save_posterior, selection_table
from lexppl.explanation.importance_kind import PROBABILITY
from lexppl.inference import FitResult
from lexppl.models.regimes import Regime
from lexppl.saving import save
from lexppl.systems import METHODS
from lexppl.tabular.fit_plan import FEW_ROWS

POSTERIOR, IMPORTANCE, REPORT = "posterior.nc", "importance.csv", "report.html"
EXPLAINER, ENCODING = "explainer", "encoding.json"
OUTPUTS = (POSTERIOR, IMPORTANCE, REPORT, EXPLAINER, ENCODING)
EXPLAINED_ROWS = 1000
"""Most held-out rows whose masks are written."""
SHOWN_FEATURES = 20


@dataclass(frozen=True, eq=False)
class Fitted:
    """An explainer, and what it was fitted with.

    Args:
        result: the fit.
        said: what the black box says of every row, or None.
        full: the predictor that sees everything, where it was fitted first.
    """

    result: FitResult
    said: Tensor | None
    full: FittedPredictor | None


def run_explain(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain`.

    Args:
        options: as typed.
        command: the words that were typed, for the report.

    Returns:
        the exit code: 0, or 130 if the fit was interrupted.

    Raises:
        UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
        KeyboardInterrupt: interrupted before there was anything to write, or a second time.
    """
    regime = regime_of(options)
    device = device_of(options.device)
    with output_folder(options.out, options.overwrite, OUTPUTS) as folder:
        model = load_black_box(options) if options.black_box else None
        source = read_source(options, device)
        check_size(options.k, source.data.n_groups)
        parts = divide(source.data, options.valid_share, options.test_share, options.seed)
        plan = plan_of(options, len(parts.train), regime)
        with one_thread(len(parts.train) < FEW_ROWS):
            findings, complete = _find(options, plan, source, parts, model, command)
            _write(folder, findings)
    _print(findings, Path(options.out))
    return 0 if complete else INTERRUPTED


def _find(
    options: argparse.Namespace,
    plan: FitSettings,
    source: LoadedTable,
    parts: Splits,
    model: Any,
    command: Sequence[str],
) -> tuple[ReportData, bool]:
    """Fit, judge and draw; and whether Ctrl-C has left all of it alone."""
    fitted = _fit(options, plan, source, parts, model)
    result = fitted.result
    warnings = collapse_messages(result.collapse)
    if not result.interrupted:
        epochs = len(result.history)
        grows = METHODS[plan.method].takes("imputations") and plan.penalty is not None
        warnings += early_message(result.best_epoch.tolist(), epochs, grows)
    if result.interrupted:
        _refuse_untrained(result)
        warnings.insert(0, _interruption(result, plan))
    for warning in warnings:
        warn(warning)
    judgement, complete = _judge(options, plan, source, parts, fitted)
    if not complete and not result.interrupted:
        warnings.append("the scores were interrupted and are not complete")
        warn(warnings[-1])
    tell("drawing the posterior and writing", options.quiet)
    posterior, explained = _posterior(options, result, parts)
    findings = ReportData(
        source=source,
        parts=parts,
        plan=plan,
        result=result,
        posterior=posterior,
        ranking=selection_table(posterior),
        judgement=judgement,
        explained=explained,
        warnings=tuple(warnings),
        command=tuple(command),
        draws=options.draws,
        device=options.device,
        black_box=options.black_box,
    )
    return findings, complete


def _fit(
    options: argparse.Namespace, plan: FitSettings, source: LoadedTable, parts: Splits, model: Any
) -> Fitted:
    said = None if model is None else black_box_targets(model, source, options)
    full = None
    method = METHODS[plan.method]
    if options.regime is not None and not method.takes("predictor"):
        raise UsageError(f"--method {plan.method} takes no --regime: it has its own")
    if method.explains_model or not plan.regime.learns_predictor:
        tell("fitting the predictor that sees everything", options.quiet)
        answers = None
        if said is not None:
            answers = [said[rows.to(said.device)] for rows in (parts.train_rows, parts.valid_rows)]
        full = fit_full_predictor(plan, parts, not options.quiet, answers)
        if full.result.interrupted:
            raise KeyboardInterrupt
    predictor = None if full is None else full.predictor
    if method.explains_model and said is None:
        plan = replace(plan, regime=Regime.SELF_POST_HOC)
    targets = [
        targets_of(plan, part, rows, said, predictor)
        for part, rows in ((parts.train, parts.train_rows), (parts.valid, parts.valid_rows))
    ]
    tell(
        f"fitting the explainer, {plan.replicates} replicate{'s' if plan.replicates > 1 else ''}",
        options.quiet,
    )
    result = fit_explainer(plan, parts, targets, predictor, not options.quiet)
    # A predictor that was fitted to a black box is no reference for the labels.
    return Fitted(result, said, full if said is None else None)


def _refuse_untrained(result: FitResult) -> None:
    if len(result.history) == 0:
        raise KeyboardInterrupt


def _interruption(result: FitResult, plan: FitSettings) -> str:
    return (
        f"interrupted after {len(result.history)} of {plan.epochs} epochs; the best state so far "
        "is written, without the judges' scores (Ctrl-C again ends without writing)"
    )


def _judge(
    options: argparse.Namespace,
    plan: FitSettings,
    source: LoadedTable,
    parts: Splits,
    fitted: Fitted,
) -> tuple[Judgement, bool]:
    """The scores, and whether they are all there; an interrupted fit is scored by itself alone."""
    scores: list[ScoreRow] = []
    curve: SizeCurve | None = None
    progress = not options.quiet
    try:
        scores.append(judge_explainer(fitted.result, source, parts, options.seed))
        if fitted.said is not None:
            scores.append(judge_black_box(fitted.said, source, parts))
            scores[0] = _with_agreement(scores[0], fitted, fitted.said, source, parts, options.seed)
        if fitted.result.interrupted:
            return Judgement(tuple(scores), None), False
        if fitted.full is None:
            tell("fitting a predictor that sees everything", options.quiet)
        row, interrupted = judge_full(plan, source, parts, fitted.full, progress)
        if interrupted:
            return Judgement(tuple(scores), None), False
        scores.append(row)
        tell("fitting EVAL-X, the judge", options.quiet)
        judge = fit_judge(plan, parts, progress)
        if judge.result.interrupted:
            return Judgement(tuple(scores), None), False
        row, curve = judge_by_evalx(judge, fitted.result, source, parts, options.seed)
        scores.append(row)
    except KeyboardInterrupt:
        return Judgement(tuple(scores), None), False
    return Judgement(tuple(scores), curve), True


def _with_agreement(
    row: ScoreRow, fitted: Fitted, said: Tensor, source: LoadedTable, parts: Splits, seed: int
) -> ScoreRow:
    figures = {**row.figures, "agreement": agreement(fitted.result, said, source, parts, seed)}
    return ScoreRow(row.who, row.size, figures, row.spreads)


def _posterior(
    options: argparse.Namespace, result: FitResult, parts: Splits
) -> tuple[Posterior, int]:
    """The masks of the held-out rows, and how many rows these are."""
    count = min(len(parts.test), EXPLAINED_ROWS)
    posterior = explain(
        result,
        parts.test.x[:count],
        draws=options.draws,
        seed=options.seed,
        row_names=[int(row) for row in parts.test_rows[:count]],
        entry_names=parts.test.group_names,
        feature_names=parts.test.feature_names,
    )
    return posterior, count


def _write(folder: Path, findings: ReportData) -> None:
    save_posterior(findings.posterior, folder / POSTERIOR)
    findings.ranking.to_csv(folder / IMPORTANCE)
    save(findings.result, folder / EXPLAINER)
    encoding = findings.source.data.encoding
    if encoding is not None:
        text = json.dumps(encoding.to_json(), indent=1, ensure_ascii=False)
        (folder / ENCODING).write_text(text, encoding="utf-8")
    write_report(findings, folder / REPORT)


def _print(findings: ReportData, folder: Path) -> None:
    for line in findings.summary():
        print(line)
    print()
    ranking = ranked_features(findings.ranking)
    kind = findings.kind
    print(f"Ranked features: {kind.meaning}, mean over held-out rows")
    head = ["feature", kind.name, "95 % interval", "agreement"]
    print(text_table(head, [feature.cells for feature in ranking[:SHOWN_FEATURES]]))
    more = len(ranking) - SHOWN_FEATURES
    if more > 0:
        print(f"  … and {more} more in {folder / IMPORTANCE}")
    if findings.result.replicates > 1:
        near = "they keep the feature in the same rows" if kind is PROBABILITY else "they agree"
        print(
            f"  interval over {findings.result.replicates} replicates (seeds of the fit); "
            f"agreement near 1: {near}"
        )
    else:
        print("  one replicate: no interval and no agreement; give --replicates 4 for both")
    print()
    print(f"Held-out rows: {len(findings.parts.test)}")
    print(text_table(*score_cells(findings.judgement.scores)))
    print()
    print(f"Written to {folder}: {', '.join(findings.written())}")
