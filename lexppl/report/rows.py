"""Report of an explainer of images or of texts: what `lexppl explain` fits and writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexppl.argument_checks import int_between
from lexppl.arviz_compatibility import Posterior
from lexppl.choices.imputers import OF_WORDS
from lexppl.choices.methods import DEFAULT_METHOD, METHODS
from lexppl.choices.settings import chooses_penalty, usual_imputer
from lexppl.data.stratification import evenly
from lexppl.data.texts import TextDataset
from lexppl.evaluation import fit_predictor
from lexppl.evaluation.effects import revealed_predictions
from lexppl.evaluation.evalx import EvalX, FittedPredictor, fit_evalx
from lexppl.evaluation.prediction import (
    BaseRateGain,
    base_frequencies,
    base_log_likelihood,
    gain_over_base_rate,
    is_behind,
    predictive,
    predictive_log_likelihood,
)
from lexppl.explanation import mask_means, selection_table
from lexppl.explanation.explain import explanation_tree
from lexppl.explanation.reading.masks import PROBABILITY, kind_of
from lexppl.inference import Checkpoints, FitResult, TrainingOptions, entropy_unit, fit
from lexppl.inference.training.checkpoint import below
from lexppl.inference.training.watch import Progress
from lexppl.models import BigramImputer, UnigramImputer, regime_targets
from lexppl.models.architectures.base import Architecture
from lexppl.models.architectures.images import ImageArchitecture
from lexppl.models.architectures.texts import TextArchitecture
from lexppl.models.imputers import imputer_of
from lexppl.report.data import ReportOptions, RowsReport
from lexppl.report.divided_rows import DividedRows, Part, written_words
from lexppl.report.fit_warnings import NO_VALIDATION, behind_message, copied_message
from lexppl.report.results.scores import Judgement
from lexppl.report.results.single_rows import ExplainedRow, default_rows, explained_row
from lexppl.report.results.words import WordFindings, found_words, word_table
from lexppl.report.sections import SectionedReport, Sections, Tell
from lexppl.summary import counted
from lexppl.systems.fit_plan import FitPlan, check_method, plan_for
from lexppl.tabular.table_fit import method_system

Fitted = TypeVar("Fitted")

EXPLAINED_ROWS, EXPLAINED_NUMBERS = 300, 50_000_000
"""Most held-out rows whose masks are written, and most entries of their draws."""
LEARNED_ROWS = 500  # Most rows of the gain over the base rate, and of the choice of a penalty
LOWER_PENALTIES = 2  # Most fits at a quarter of the penalty of the fit before
STEPS, STEP_MASKS = 200_000, 100
"""Most predictions of single rows (seconds), and most masks of each."""
RANKED_DRAWS = 2
FULL_EPOCHS, JUDGE_EPOCHS, JUDGE_PATIENCE = 2, 3, 10
"""The predictor that sees everything and EVAL-X, which sees random masks, learn for so many times
the explainer's epochs; EVAL-X ends where it no longer gets better."""
LEAST_EPOCHS, MOST_EPOCHS = 5, 200  # Of a fit by default
OF_TEXTS, OF_PERCEPTRONS, OF_CONVOLUTIONS = (200, 100, 3e-3), (400, 100, 1e-3), (300, 50, 5e-3)
"""Steps, rows of a batch and learning rate by default, in minutes of 2,000 rows. Networks that
start from fitted ones take a larger rate."""
DECAY_OF_TEXTS = 0.2
"""Weight decay, over N: of 300 texts an explainer is −.38 nats right, −.46 without and, keeping
nearly all words, −.22 by ten times as much."""
WORDS_KEPT = 10  # By default, by a method that needs a k; L2X's


class ReportOfRows(SectionedReport):
    """Explainer of images or of texts, fitted by :meth:`fit`, and its report on held-out rows.

    Where the penalty is not given and the explainer predicts validation rows worse than a predictor
    that sees everything (:func:`lexppl.evaluation.prediction.is_behind`), it is fitted at a quarter
    of the penalty, at most twice; :attr:`plan` has the penalty in use.

    Example:
        >>> from lexppl.data import texts_of
        >>> from lexppl.report.divided_rows import divided_rows
        >>> written = ["a good film", "a bad film", "good and long", "long and bad"] * 15
        >>> data = texts_of(written, ["good", "bad", "good", "bad"] * 15)
        >>> rows = divided_rows(*data.split(0.6, 0.2, 0.2, seed=0))
        >>> explained = ReportOfRows(rows, plan_of_rows(rows, epochs=20), draws=10).fit()
        >>> report = explained.results()  # As .write(folder), without the files.
        >>> sorted(report.words.table.index[report.words.table["found"]])
        ['bad', 'good']

    Args:
        source: rows to fit on and held-out ones, of
            :func:`lexppl.report.divided_rows.divided_rows`.
        plan: of :func:`plan_of_rows`; None for its defaults.
        progress, checkpoints: of the fits, as :func:`lexppl.inference.fit` takes them.
        say: called with what begins.
        options: of :class:`lexppl.report.data.ReportOptions`: `draws` and `row`.

    Raises:
        ValueError, TypeError: a row that is not there; an option outside its range.
    """

    source: DividedRows
    architecture: Architecture
    full: FittedPredictor | None = None
    masks, draws = 20, 5

    def __init__(
        self,
        source: DividedRows,
        plan: FitPlan | None = None,
        *,
        progress: Progress = False,
        checkpoints: Checkpoints | None = None,
        say: Tell = lambda text: None,
        **options: Any,
    ) -> None:
        self.source, self.plan = source, plan or plan_of_rows(source)
        self.options = ReportOptions(**options)
        self.progress, self.checkpoints, self.say = progress, checkpoints, say
        self.entries = source.data.entries.partition(" of ")[0]
        for row in self.options.row:
            int_between("row", row, 0, int(source.numbers[-1]), note="numbers of rows")

    def fit(self) -> ReportOfRows:
        """Fit the explainer, and first the predictor that sees everything; the report itself."""
        plan, source = self.plan, self.source
        self.architecture, observed = source.architecture, None
        can_start = isinstance(self.architecture, ImageArchitecture | TextArchitecture)
        starts = can_start and plan.folds in (None, 1)
        if plan.needs_full_predictor or starts:
            self.say("fitting the predictor that sees everything")
            full = self.full = self.fit_full()
            if full.result.interrupted:
                raise KeyboardInterrupt
            observed = full.predictor if plan.needs_full_predictor else None
            if starts:
                # A selector learns nothing from a predictor that predicts nothing yet.
                self.architecture = self.architecture.starting_from(full.predictor.network)
        self.say(f"fitting the explainer, {counted(plan.replicates, 'replicate')}")
        self.result = self._explainer(plan, observed)
        chosen = plan.k is not None or plan.penalty_given or not chooses_penalty(plan.method)
        if starts and not (chosen or plan.needs_full_predictor):
            self._at_lower_penalties()
        self.result.entry_names = source.data.entry_names
        self.result.class_names = source.data.class_names
        self.sections = Sections(not self.result.interrupted)
        return self

    def _explainer(self, plan: FitPlan, observed: nn.Module | None = None) -> FitResult:
        source, method = self.source, METHODS[plan.method]
        settings = {
            **plan.settings,
            "features": self.architecture,
            "hidden": None,
            "predictor_hidden": None,
            "classes": len(source.data.class_names),
            "black_box": observed,
            "imputer": _imputer(plan, source) if method.takes("imputer") else None,
        }
        has_own_rate = method.own_rate is not None and not plan.rate_given
        lower = "" if plan.penalty == self.plan.penalty else f" at {plan.penalty:.3g}"
        return self._fitted(
            partial(fit, method_system(plan, settings, source.train.x)),
            f"explainer{lower}",
            observed,
            replicates=plan.replicates,
            epochs=plan.epochs,
            learning_rate=None if has_own_rate else plan.schedule,
        )

    def _at_lower_penalties(self) -> None:
        """Fits at a quarter of the penalty, and of that, while the predictor that sees everything
        is ahead on validation rows; the first that is not behind, else the likeliest."""
        train, valid, full = self.source.train, self.source.valid, self.full
        if valid is None or full is None:
            return
        places = evenly(len(valid), LEARNED_ROWS)
        x, y = valid.x[places], valid.y[places]

        def log_likelihood(result: FitResult) -> NDArray[np.float64]:
            by_row = predictive_log_likelihood(result, x, y, masks=self.masks, seed=self.plan.seed)
            return np.asarray(by_row.double().mean(0).cpu().numpy())

        by_full = log_likelihood(full.result)
        by_base = base_log_likelihood(train.y.cpu(), y.cpu()).double().numpy()
        plan, by_row = self.plan, log_likelihood(self.result)
        for _ in range(LOWER_PENALTIES):
            if self.result.interrupted or not is_behind(by_row, by_full, by_base):
                return
            plan = replace(plan, penalty=float(plan.penalty or 0.0) / 4.0)
            self.say(
                f"fitting the explainer at a lower penalty, {plan.penalty:.3g} nats: it predicts "
                f"less well than from all {self.entries}"
            )
            lower = self._explainer(plan)
            by_lower = log_likelihood(lower)
            if lower.interrupted or by_lower.mean() <= by_row.mean():
                return
            self.plan, self.result, by_row = plan, lower, by_lower

    def _fitted(
        self,
        fit: Callable[..., Fitted],
        name: str,
        observed: nn.Module | None = None,
        **settings: Any,
    ) -> Fitted:
        """Fit on the rows, by the plan, to labels or a predictor's outputs."""
        plan, source = self.plan, self.source
        return fit(
            _rows(source.train, observed),
            valid=None if source.valid is None else _rows(source.valid, observed),
            batch_size=plan.batch_size,
            weight_decay=plan.weight_decay,
            seed=plan.seed,
            checkpoint=below(self.checkpoints, name),
            progress=self.progress,
            **settings,
        )

    def fit_full(self) -> FittedPredictor:
        if self.full is not None:
            return self.full
        return self._fitted(
            partial(fit_predictor, architecture=self.source.architecture),
            "full-predictor",
            epochs=FULL_EPOCHS * self.plan.epochs,
            learning_rate=self.plan.schedule,
            training=TrainingOptions(),
        )

    def fit_judge(self) -> EvalX:
        """Fit EVAL-X, to which hidden entries are black, padding, or the mean of their channel, as
        to the explainer."""
        imputer = None
        if self.plan.imputer == "channel-mean":
            imputer = _imputer(self.plan, self.source)
        return self._fitted(
            partial(fit_evalx, architecture=self.architecture, imputer=imputer),
            "judge",
            epochs=JUDGE_EPOCHS * self.plan.epochs,
            learning_rate=self.plan.learning_rate,
            training=TrainingOptions(patience=JUDGE_PATIENCE),
        )

    def warnings_of_fit(self) -> list[str]:
        lines = [NO_VALIDATION] * (self.source.valid is None) + self.copied
        return lines + super().warnings_of_fit()

    @cached_property
    def copied(self) -> list[str]:
        """Warning where held-out rows are copies of those of the fit."""
        return copied_message(self.source)

    def learned(self) -> BaseRateGain:
        train_y, test, seed = self.source.train.y, self.source.test, self.plan.seed
        places = evenly(len(test), LEARNED_ROWS)
        x, y = test.x[places], test.y[places]
        return gain_over_base_rate(self.result, train_y, x, y, masks=self.masks, seed=seed)

    def behind(self, judgement: Judgement) -> list[str]:
        if self.plan.needs_full_predictor or not judgement.behind:
            return []
        return self._worded([behind_message(judgement.behind, judgement.other_kind, advice="")])

    def report(self, gain: BaseRateGain, judgement: Judgement, judge: EvalX | None) -> RowsReport:
        options, source = self.options, self.source
        room = EXPLAINED_NUMBERS // (self.result.replicates * options.draws * source.data.n_entries)
        count = min(len(source.test), EXPLAINED_ROWS, max(10, room))
        places, typed = evenly(len(source.test), count), list(dict.fromkeys(options.row))
        numbers = source.part_numbers[2][places].tolist()
        posterior = self.posterior(source.test.x[places], source.test.y[places], numbers)
        early = "single rows were interrupted"
        rows = self.sections.run(
            "looking at single rows", lambda: self._single_rows(posterior), (), early
        )
        requested = None
        if typed:
            part = source.by_number(typed)
            requested = self.posterior(part.x, part.y, typed)
        words = self._words(source.test) if isinstance(source.test, TextDataset) else None
        return RowsReport(
            **self.shared(posterior, judgement),
            ranking=selection_table(posterior) if words is None else words.table,
            requested=requested,
            rows=rows,
            numbers=(numbers, typed),
            words=words,
            learning=gain,
        )

    def _words(self, test: TextDataset) -> WordFindings:
        """What words say of the class, or of the predictor's output that is explained."""
        source, result, seed = self.source, self.result, self.plan.seed
        means = mask_means(explanation_tree(result, test.x, draws=RANKED_DRAWS, seed=seed)).values
        observed = None
        if self.plan.needs_full_predictor and self.full is not None:
            observed = self.full.predictor
        parts = [part for part in (source.train, source.valid, test) if part is not None]
        x, y = map(torch.cat, zip(*(_rows(part, observed) for part in parts), strict=True))
        if self.copied:  # The predictors that judge a text may not have learned from its copy.
            places = np.unique(x.cpu().numpy(), axis=0, return_index=True)[1]
            x, y = x[places], y[places]
        table = word_table(means, test.x, x, y, test.vocabulary, test.class_names)
        early = "measuring words was interrupted: none is found"
        words = self.sections.run(
            "measuring what words say",
            lambda: found_words(table, x, y, test.vocabulary, seed),
            WordFindings(table, len(x), 0),
            early,
        )
        numbers = test.vocabulary.numbers(words.table.index[words.table["found"]])
        there = torch.isin(test.x.cpu(), torch.tensor(numbers, dtype=test.x.dtype)).any(1)
        predicted = predictive(result, test.x, masks=self.masks, seed=seed).mean(0).argmax(-1)
        right = (predicted == test.y).cpu()[there].double().mean()
        return replace(words, covered=float(there.double().mean()), right=float(right))

    def _single_rows(self, posterior: Posterior) -> tuple[ExplainedRow, ...]:
        """Rows of --row, or three held-out ones; none of masks that do not select."""
        if kind_of(posterior) is not PROBABILITY:
            return ()
        source, options, result = self.source, self.options, self.result
        labels = torch.zeros(int(source.numbers.max()) + 1, dtype=torch.long)
        labels[torch.from_numpy(source.numbers)] = source.numbered.y.cpu()
        chosen = {row: "asked for" for row in options.row} or default_rows(posterior, labels)
        part = source.by_number(list(chosen))
        cost = len(chosen) * (source.data.n_entries + 1) * result.replicates
        masks = max(4, min(STEP_MASKS, STEPS // cost))
        steps = revealed_predictions(result, part.x, masks=masks, seed=self.plan.seed)
        classes, names = source.data.class_names, source.data.entry_names
        base = base_frequencies(source.train.y, len(classes)).cpu().numpy()
        words = written_words(part)
        rows = []
        for place, (number, why) in enumerate(chosen.items()):
            why += source.part_of(number)
            observed = classes[int(labels[number])]
            values = dict(zip(names, words[place], strict=False)) if words else {}
            rows.append(explained_row(steps, place, base, number, why, observed, values))
        return tuple(rows)

    def lines_of(self, rows: Sequence[ExplainedRow]) -> pd.DataFrame:
        lines = super().lines_of(rows)
        return lines[lines["step"].isna() | (lines["step"].abs() > 0)]


def plan_of_rows(source: DividedRows, method: str = DEFAULT_METHOD, **settings: Any) -> FitPlan:
    """The plan of a fit to images or texts, with defaults for settings that are not given. Weights
    of text networks that start from nothing do not decay: an L2 term in the gradient flattens the
    selector of words (:func:`lexppl.models.texts`).

    Args:
        source: of :func:`divided_rows`.
        method: of `lexppl explain --method`.
        settings: its options by their names: `k`, `penalty`, `epochs`, `replicates`, `seed` …

    Raises:
        ValueError: an unknown method or setting, a k above the number of entries.
    """
    check_method(method, labels=True)
    rows, entries = len(source.train), source.data.n_entries
    known = METHODS[method]
    is_convolutional = isinstance(source.architecture, ImageArchitecture)
    usual = OF_CONVOLUTIONS if is_convolutional else OF_PERCEPTRONS
    steps, batch, rate = OF_TEXTS if source.are_texts else usual
    size = settings.setdefault("batch_size", min(batch, math.ceil(rows / 3)))
    epochs = math.ceil(steps / math.ceil(rows / size))
    settings.setdefault("epochs", max(LEAST_EPOCHS, min(MOST_EPOCHS, epochs)) * known.epochs)
    if known.takes("imputer"):
        imputer = "padding" if source.are_texts else usual_imputer(known)
        if is_convolutional and imputer == "marginal":
            # Parts of things in other images' patches look like things.
            imputer = "channel-mean"
        settings.setdefault("imputer", imputer)
    if source.are_texts and known.needs("k"):
        settings.setdefault("k", min(WORDS_KEPT, entries))
    if (is_convolutional or source.are_texts) and known.takes("folds"):
        # Predictors of folds would start from a predictor that has learned from all rows.
        settings.setdefault("folds", 1)
    starts = settings.get("folds", 1) == 1
    unit = entropy_unit(source.train.y, len(source.data.class_names))
    plan = plan_for(rows, entries, method, unit=unit, one_penalty=True, **settings)
    if not plan.rate_given:
        plan = replace(plan, learning_rate=rate)
    if not source.are_texts:
        return plan
    return replace(plan, weight_decay=DECAY_OF_TEXTS / rows if starts else 0.0)


def _rows(part: Part, observed: nn.Module | None = None) -> tuple[Tensor, Tensor]:
    """Rows and labels, or a predictor's outputs."""
    if observed is None:
        return part.x, part.y
    return part.x, regime_targets("self post-hoc", part.x, predictor=observed)


def _imputer(plan: FitPlan, source: DividedRows) -> nn.Module | None:
    """The plan's imputer, fitted; None for the architecture's own, padding."""
    name, x = str(plan.imputer), source.train.x
    if name not in OF_WORDS:
        return imputer_of(name, x, plan.seed)
    size: int = getattr(source.architecture, "vocabulary_size", 0)
    if name == "unigram":
        return UnigramImputer.fit(x, size)
    return BigramImputer.fit(x, size, seed=plan.seed) if name == "bigram" else None
