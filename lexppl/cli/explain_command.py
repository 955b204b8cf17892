"""`lexppl explain`: fit an explainer on a data set and write what it found."""

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lexppl.arviz_compatibility import Posterior
from lexppl.atomic_output import refuse_without_space
from lexppl.choices.methods import METHODS
from lexppl.choices.regimes import Regime
from lexppl.choices.settings import (
    AUTO,
    NETWORK,
    TREES,
    USUAL_PREDICTOR,
    chooses_penalty,
)
from lexppl.cli.black_box_file import black_box_targets, load_black_box
from lexppl.cli.fitted_explainer import Fitted
from lexppl.cli.judged.closer_look import CloserLook, check_rows, look_closer, note_rows
from lexppl.cli.judged.encoded_choice import judge_choice
from lexppl.cli.judged.gains import (
    JudgedGains,
    explained_by,
    explained_targets,
    judge_gains,
    judge_learning,
    undecided,
)
from lexppl.cli.judged.judged_rows import folds_at
from lexppl.cli.judged.judging import (
    EXPLAINER,
    FULL,
    Judgement,
    ScoreRow,
    SizeCurve,
    agreement,
    judge_base_rate,
    judge_black_box,
    judge_by_evalx,
    judge_explainer,
    judge_full,
)
from lexppl.cli.judged.settings import Settings, at_each_penalty
from lexppl.cli.notes.messages import (
    behind_message,
    collapse_messages,
    early_message,
    learned_messages,
    path_message,
)
from lexppl.cli.notes.posterior_notes import is_asked, warnings_of_posterior, what_is_fitted
from lexppl.cli.notes.table_notes import table_notes
from lexppl.cli.options.checks import regime_of
from lexppl.cli.options.feature_groups import groups_of
from lexppl.cli.options.plan_options import device_of, plan_of
from lexppl.cli.report.findings import ReportData
from lexppl.cli.report.printed import print_findings
from lexppl.cli.source import capped, read_source
from lexppl.cli.terminal.first_answer import first_answer
from lexppl.cli.terminal.short_warnings import short_warnings
from lexppl.cli.terminal.standard_error import progress_of, tell, warn
from lexppl.cli.terminal.threads import one_thread
from lexppl.cli.written.checkpoints import checkpoints_of
from lexppl.cli.written.model_first import least_bytes, run_model_first, write_model
from lexppl.cli.written.written_findings import write_findings
from lexppl.data import DividedTable
from lexppl.evaluation.feature_groups import FeatureGroups
from lexppl.evaluation.penalty_path import HASTY_ROWS
from lexppl.evaluation.refits.evalx import EvalX
from lexppl.explanation import explain, selection_table
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of
from lexppl.explanation.layout.mask_groups import masks_of
from lexppl.inference import FitResult, entropy_unit
from lexppl.inference.training.checkpoint import below
from lexppl.models import Grouping
from lexppl.tabular.encoded_rows import EncodedRows
from lexppl.tabular.fit_plan import FEW_ROWS, FitPlan
from lexppl.tabular.missing_values import check_missing
from lexppl.tabular.table_columns import markers_in
from lexppl.tabular.table_fit import fit_full_predictor, fit_judge, fit_table

EXPLAINED_ROWS = 1000
"""Most held-out rows whose masks are written."""
PROPOSALS = 2
"""Masks weighed for each draw of those given the held-out y."""
NO_VALIDATION = (
    "too few rows of each class to set any apart for choosing the best epoch: all that are not "
    "held out are fitted on, and the best epoch is the one that fits them best"
)
NO_PATH = "for the same reason the penalty is not chosen from the data: it is {:.3g} nats"


@short_warnings()
def run_explain(options: argparse.Namespace, command: Sequence[str]) -> int:
    """Carry out `lexppl explain`.

    Args:
        options: as typed.
        command: the words that were typed, for the report.

    Returns:
        the exit code: 0, or 130 if the fit was interrupted.

    Raises:
        UsageError, ValueError, TypeError, OSError: a mistake in what was typed or in the data.
        KeyboardInterrupt: interrupted before there was anything to write.
    """
    regime = regime_of(options)
    device = device_of(options.device)

    def fit(folder: Path) -> tuple[DividedTable, Fitted]:
        model = load_black_box(options) if options.black_box else None
        source = capped(read_source(options, device), options.seed)
        check_rows(options.row, source)
        groups = groups_of(options.groups, source)
        with _threads(source):
            outputs = None if model is None else black_box_targets(model, source, options)
            plan = _plan(options, source, outputs, regime)
            refuse_without_space(options.out, least_bytes(plan, source))
            fitted = _fit(options, plan, source, outputs, groups)
            write_model(folder, fitted.result, source)
        return source, fitted

    def find(done: tuple[DividedTable, Fitted]) -> tuple[ReportData, bool]:
        source, fitted = done
        with _threads(source):
            return _find(options, source, fitted, command)

    return run_model_first(options, fit, find, write_findings, print_findings)


def _threads(source: DividedTable) -> AbstractContextManager[None]:
    return one_thread(len(source.train_rows) < FEW_ROWS)


def _plan(
    options: argparse.Namespace, source: DividedTable, outputs: Tensor | None, regime: Regime
) -> FitPlan:
    """What was typed; the penalty from the data, where the method can choose one on some rows."""
    data = source.data
    otherwise: dict[str, Any] = {}
    observed = data.y if outputs is None else outputs
    has_judged = source.valid_rows is not None or source.fold is not None
    if chooses_penalty(options.method) and has_judged and not is_asked(options):
        otherwise["penalty"] = AUTO
    if source.folds is not None:
        options.replicates, otherwise["in_folds"] = source.folds, True
    plan = plan_of(
        options,
        len(source.train_rows),
        data,
        regime=regime,
        **_usual_predictor(options, regime),
        unit=entropy_unit(observed[source.train_rows], len(data.class_names or ())),
        **otherwise,
    )
    if markers_in(data.encoding):
        check_missing(plan.method, plan.imputer, not plan.needs_full_predictor)
    return plan


def _usual_predictor(options: argparse.Namespace, regime: Regime) -> dict[str, str]:
    """The predictor where none is typed, of a method that leaves it open."""
    if is_asked(options):
        return {}
    is_open = METHODS[options.method].takes("predictor") and regime.learns_predictor
    if is_open and options.imputer is None:
        return {"predictor": USUAL_PREDICTOR}
    return {}


def _find(
    options: argparse.Namespace, source: DividedTable, fitted: Fitted, command: Sequence[str]
) -> tuple[ReportData, bool]:
    """Judge and draw; and whether Ctrl-C has left all of it alone."""
    result, plan = fitted.result, fitted.table.plan
    if result.interrupted:
        source = capped(source, options.seed, HASTY_ROWS)
    notes = [*_notes_of_fit(options, source, fitted), *table_notes(source, fitted.outputs)]
    gain = judge_learning(result, source, plan, fitted.outputs, fitted.full, options.seed)
    notes += learned_messages(gain, undecided(result, source, plan), result.sampler is not None)
    for note in notes:
        warn(note)
    judgement, judge, complete = _judge(options, plan, source, fitted)
    own, full = (judgement.log_likelihood(who) for who in (EXPLAINER, FULL))
    behind = behind_message(own, full, gain.error) if plan.regime is Regime.FREE_IN_SITU else []
    for note in behind:
        warn(note)
    notes = [*behind, *notes]
    collapsed = collapse_messages(result.collapse, judgement.as_good_as_all(gain.error), gain.shown)
    for note in collapsed:
        warn(note)
    notes += collapsed
    if not complete and not result.interrupted:
        notes.append("the scores were interrupted and are not complete")
        warn(notes[-1])
    tell("drawing the posterior", options.quiet)
    posterior, explained = _posterior(options, result, source)
    ranking, gains = selection_table(posterior), None
    if kind_of(posterior) is PROBABILITY and judge is not None:
        tell("measuring what the features are worth", options.quiet)
        try:
            gains = _gains(options, plan, source, fitted, judge, posterior)
        except KeyboardInterrupt:
            # A second Ctrl-C ends with the model alone.
            if not complete:
                raise
            complete = False
            notes.append("the gains were interrupted; features are ranked without them")
            warn(notes[-1])
        except FloatingPointError as error:
            notes.append(f"gains are not known: {error}")
            warn(notes[-1])
    closer, known, settings = _look_closer(
        options, source, fitted, posterior, gains, judgement, complete
    )
    tell("measuring what the choice of features encodes", options.quiet)
    choice = judge_choice(
        result,
        source,
        plan,
        outputs=fitted.outputs,
        full=fitted.full,
        seed=options.seed,
        complete=complete and known,
    )
    complete = complete and known and choice.complete
    for note in (*closer.notes, *choice.notes()):
        notes.append(note)
        warn(note)
    findings = ReportData(
        source=source,
        given=options.data,
        plan=plan,
        predictor=fitted.table.predictor,
        result=result,
        posterior=posterior,
        ranking=ranking if gains is None else gains.joined(ranking),
        gains=gains,
        closer=closer,
        judgement=judgement,
        explained=explained,
        warnings=tuple(notes),
        command=tuple(command),
        draws=options.draws,
        device=options.device,
        black_box=options.black_box,
        path=fitted.table.path,
        choice=choice,
        learning=gain,
        settings=settings,
    )
    return findings, complete


def _fit(
    options: argparse.Namespace,
    plan: FitPlan,
    source: DividedTable,
    outputs: Tensor | None,
    groups: FeatureGroups,
) -> Fitted:
    progress, kept = progress_of(options), checkpoints_of(options)
    folds = folds_at(source, source.train_rows)
    rows = EncodedRows.of(source.data, source.train_rows, source.valid_rows, outputs, folds)
    full = None
    if plan.needs_full_predictor:
        tell("fitting the predictor that sees everything", options.quiet)
        full = fit_full_predictor(plan, rows, progress, below(kept, "explained-predictor"))
    tell(what_is_fitted(plan), options.quiet)
    with warnings_of_posterior() as told:
        kind = TREES if plan.predictor_kind == TREES else NETWORK
        kept = below(kept, kind)
        fitted = fit_table(
            plan,
            rows,
            full=full,
            checkpoint=kept,
            progress=progress,
            watch=partial(first_answer, groups=groups, seed=plan.seed, quiet=options.quiet),
        )
    if len(fitted.result.history) == 0 and fitted.result.sampler is None:
        raise KeyboardInterrupt
    # A predictor that was fitted to a black box is no reference for the labels.
    return Fitted(fitted, outputs, full if outputs is None else None, groups, tuple(told))


def _notes_of_fit(options: argparse.Namespace, source: DividedTable, fitted: Fitted) -> list[str]:
    """What the reader should mind of the fit."""
    result, plan = fitted.result, fitted.table.plan
    unjudged = source.valid_rows is None and source.fold is None and not result.sampler
    notes = [NO_VALIDATION] if unjudged else []
    if notes and options.penalty is None and plan.k is None and chooses_penalty(plan.method):
        notes.append(NO_PATH.format(plan.penalty))
    if result.interrupted:
        return [_interruption(fitted), *notes]
    if plan.posterior is not None:
        return [*notes, *fitted.told]
    grows = METHODS[plan.method].takes("imputations") and plan.penalty is not None
    if fitted.table.path is not None:
        path = fitted.table.path
        notes += path_message(path.table["penalty"].tolist(), path.index)
    return notes + early_message(result.best_epoch.tolist(), len(result.history), grows)


def _interruption(fitted: Fitted) -> str:
    done = f"after {len(fitted.result.history)} of {fitted.table.plan.epochs} epochs"
    return (
        f"interrupted {done}; the best state so far is written, judged by itself on at most "
        f"{HASTY_ROWS} held-out rows (Ctrl-C again ends with the model alone)"
    )


def _judge(
    options: argparse.Namespace, plan: FitPlan, source: DividedTable, fitted: Fitted
) -> tuple[Judgement, EvalX | None, bool]:
    """The scores, EVAL-X, and whether all is there; an interrupted fit is scored by itself."""
    scores: list[ScoreRow] = []
    curve: SizeCurve | None = None
    progress = progress_of(options)
    try:
        scores.append(judge_explainer(fitted.result, source, options.seed))
        scores.append(judge_base_rate(source))
        if fitted.outputs is not None:
            scores.append(judge_black_box(fitted.outputs, source))
            scores[0] = _with_agreement(scores[0], fitted, fitted.outputs, source, options.seed)
        if fitted.result.interrupted:
            return Judgement(tuple(scores), None), None, False
        if fitted.full is None:
            tell("fitting a predictor that sees everything", options.quiet)
        kept = below(checkpoints_of(options), "full-predictor")
        scores.append(judge_full(plan, source, fitted.full, progress, kept))
        tell("fitting EVAL-X, the judge", options.quiet)
        judge = fit_judge(
            plan, _judge_rows(source, None), progress, below(checkpoints_of(options), "judge")
        )
        if judge.result.interrupted:
            return Judgement(tuple(scores), None), None, False
        row, curve = judge_by_evalx(judge, fitted.result, source, options.seed)
        scores.append(row)
    except KeyboardInterrupt:
        return Judgement(tuple(scores), None), None, False
    return Judgement(tuple(scores), curve), judge, True


def _judge_rows(source: DividedTable, targets: Tensor | None) -> EncodedRows:
    """The rows that EVAL-X learns from: those of the explainer, or with other targets."""
    folds = folds_at(source, source.train_rows)
    rows = EncodedRows.of(source.data, source.train_rows, source.valid_rows, targets, folds)
    data = source.data
    # A marker of a missing value is hidden with it.
    grouping = Grouping(data.groups, data.entry_names, (data.n_features,)).to(data.x.device)
    return replace(rows, grouping=grouping)


def _with_agreement(
    row: ScoreRow, fitted: Fitted, outputs: Tensor, source: DividedTable, seed: int
) -> ScoreRow:
    figures = {**row.figures, "agreement": agreement(fitted.result, outputs, source, seed)}
    return replace(row, figures=figures)


def _posterior(
    options: argparse.Namespace, result: FitResult, source: DividedTable
) -> tuple[Posterior, int]:
    """The masks of held-out rows, given x alone and given y too, and how many rows these are."""
    count = min(len(source.test), EXPLAINED_ROWS)
    folds = folds_at(source, source.test_rows[:count])
    by = partial(explain, result) if folds is None else partial(folds.posterior, result)
    posterior = by(
        source.test.x[:count],
        source.test.y[:count],
        draws=options.draws,
        proposals=PROPOSALS,
        held_out=True,
        seed=options.seed,
        row_names=[int(row) for row in source.test_rows[:count]],
    )
    return posterior, count


def _gains(
    options: argparse.Namespace,
    plan: FitPlan,
    source: DividedTable,
    fitted: Fitted,
    judge: EvalX,
    posterior: Posterior,
) -> JudgedGains | None:
    """What groups and features are worth; one row alone has no spread to tell it by."""
    if len(source.test_rows) < 2:
        return None
    targets, predicted = explained_by(source, plan, fitted.outputs, fitted.full)
    if targets is not source.data.y:
        judge = fit_judge(plan, _judge_rows(source, targets), progress_of(options))
        if judge.result.interrupted:
            raise KeyboardInterrupt
    return judge_gains(
        judge,
        fitted.result,
        source,
        posterior,
        targets,
        predicted,
        groups=fitted.groups,
        fdr=options.fdr,
        fwer=options.fwer,
        seed=options.seed,
    )


def _look_closer(
    options: argparse.Namespace,
    source: DividedTable,
    fitted: Fitted,
    posterior: Posterior,
    gains: JudgedGains | None,
    judgement: Judgement,
    complete: bool,
) -> tuple[CloserLook, bool, Settings | None]:
    """Directions and single rows, whether Ctrl-C has left them alone, and the fit at each penalty;
    a second one ends with the model alone."""
    if kind_of(posterior) is not PROBABILITY:
        note = "--row: masks that do not select have no steps by feature"
        return CloserLook(notes=(note,) * bool(options.row)), True, None
    tell("looking at directions and single rows", options.quiet)
    plan, outputs, full = fitted.table.plan, fitted.outputs, fitted.full
    closer = CloserLook(notes=("single rows and directions were interrupted",))
    try:
        note_rows(posterior, source, gains)
        closer = look_closer(
            fitted.result,
            source,
            plan,
            posterior,
            outputs=outputs,
            full=full,
            groups=fitted.groups,
            asked=options.row,
            seed=options.seed,
        )
        path = fitted.table.path
        own = next((score for score in judgement.scores if score.who == EXPLAINER), None)
        if not complete or path is None or own is None:
            return closer, True, None
        settings = at_each_penalty(
            path,
            source,
            own,
            explained_targets(source.data, np.arange(len(source.data)), plan, outputs, full),
            fitted.groups,
            [row.number for row in closer.rows],
            len(masks_of(posterior)["row"]),
            options.seed,
        )
        return closer, True, settings
    except KeyboardInterrupt:
        if not complete:
            raise
        return closer, False, None
