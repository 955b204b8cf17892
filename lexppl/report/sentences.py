"""Sentences of the report: answers of its first screen, and what gains and intervals mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from lexppl.choices.settings import POINTS, Regime
from lexppl.evaluation.importance import FDR
from lexppl.explanation.reading.masks import PROBABILITY
from lexppl.explanation.reading.modes import Alternative
from lexppl.explanation.reading.sentences import BOLD, NAMED, PLAIN, ReadGroup, Reading, groups_read
from lexppl.report.data import Report, RowsReport, TableReport
from lexppl.report.fit_warnings import collapse_messages
from lexppl.report.results.gains import JudgedGains
from lexppl.report.results.scores import BASE, EXPLAINER, FULL, Judgement, ScoreRow
from lexppl.report.results.words import LEAST_TEXTS, WordFindings
from lexppl.summary import counted, listed


def gain_meaning(gains: JudgedGains) -> str:
    """What a gain is, and which are found."""
    groups = len(gains.groups)
    members = (
        "Features that depend on each other are one group; a member's gain is what it says beyond "
        "all others, and by that alone it is found. "
    ) * bool((gains.groups["members"] > 1).any())
    part = f"Measured are the {gains.measured} of {groups} groups that are kept most. "
    return (
        f"Gain: how much worse {gains.predicted} is predicted without the group, from all others, "
        "in nats a row; alone: how much better from the group alone than from the base rate. Both "
        "are of the table, by predictors that learn from other rows than those that they judge, "
        f"{gains.rows} in all, and not of this explainer. The interval is of what tables of "
        f"{gains.rows} rows show on average: many more rows show more. {members}"
        f"{part * (gains.measured < groups)}Found is what says more than nothing, alone or beyond "
        f"the others, at {gains.rate}."
    )


def posterior_meaning(report: TableReport) -> str:
    """What the interval over a posterior of the weights is."""
    plan, result = report.plan, report.result
    words = "" if plan.posterior is None else plan.posterior.words
    if _are_points(report):
        return (
            f"The explainer was fitted from several starts: {words}; {draws_text(report)}. The "
            f"interval beside the {report.kind.label} holds 95 % of these fits: how far they "
            "agree. It is no posterior, which the rows leave wider: ask nuts, sghmc or laplace for "
            "one."
        )
    first = (
        f"The explainer's weights have a posterior: {words}; {draws_text(report)}. The interval "
        f"beside the {report.kind.label} holds 95 % of its posterior, for these held-out rows: how "
        "sure the rows of the fit, and the prior, leave one of it. "
    )
    if isinstance(plan.penalty, float) and plan.penalty != 0.0:
        first += (
            "It is a Gibbs posterior (Bissiri, Holmes & Walker 2016): the penalty of "
            f"{plan.penalty:.3g} nats for each feature kept counts beside the rows' likelihood, "
            "and another penalty would give another posterior. "
        )
    if "r_hat" in report.ranking:
        known = result.sampler.summary if result.sampler is not None else None
        return first + (
            "r̂ compares the chains with each other: those that have converged to one posterior are "
            "below 1.01. It says nothing of whether anything was learned. "
            f"Of all weights: {known}."
        )
    if result.replicates > 1:
        return first + (
            "The posterior was fitted from several seeds, all of which are in the interval; the "
            "agreement says whether they keep the feature in the same rows."
        )
    return first


def consistency(report: TableReport) -> str:
    """Name of the ranking's last column."""
    return "r̂" if "r_hat" in report.ranking else "agreement"


def _are_points(report: TableReport) -> bool:
    """Whether the draws are modes of the posterior."""
    posterior = report.plan.posterior
    return posterior is not None and posterior.inference in POINTS


def draws_text(report: Report) -> str:
    """Sampler or guide, and number of draws."""
    result = report.result
    if result.sampler is None:
        return f"by a guide, {counted(result.replicates, 'fit')}"
    count = result.guides[0].draws
    if result.sampler.are_chains:
        return f"by {result.sampler.name}, {counted(result.replicates, 'chain')} of {count} draws"
    return f"by {result.sampler.name}, {count} draws"


QUALITY, FIDELITY = "How well does it predict?", "How well does it reproduce the black box?"
ENOUGH = "Which features are enough for a prediction?"
OUTPUTS = MappingProxyType(  # What is predicted in place of the target
    {
        Regime.SURROGATE_POST_HOC: "the black box's output",
        Regime.SELF_POST_HOC: "the fitted predictor's output",
    }
)
CLOSE = 0.02  # Difference of shares of predictors about as good
RARE, MOST_RARE = 0.4, 3
"""Share of a class, of the share that it has if all have the same, below which it is rare, and the
most such classes that are named."""
NEEDED = 0.05  # p of what a feature says beyond the others up to which it has no alternative
TOGETHER = "together with others"  # Of words that say nothing alone
MORE_OFTEN = 1.5  # Times that masks keep words that are found as often as others, at least


@dataclass(frozen=True)
class FirstScreen(Reading):
    """Numbers of a first screen.

    Args:
        behind: that it predicts worse than a predictor that sees everything, in words.
        certified: answer to :data:`ENOUGH`.
        first: what predictions rest on, in place of what :attr:`groups` say.
        entries, row: names of features and rows.
        recalls: of each rare class its name, number of rows, and how many are predicted so.
    """

    judgement: Judgement = field(default_factory=Judgement)
    behind: str = ""
    certified: str = ""
    first: str = ""
    entries: str = "features"
    row: str = "row"
    recalls: Sequence[tuple[str, int, int]] = ()

    def answers(self) -> list[tuple[str, str]]:
        """Each question with its answer."""
        answer, scores = self.quality(), self.judgement.of(EXPLAINER)
        if scores is not None and "agreement" in scores.figures:
            found = [(FIDELITY, answer), *super().answers()]
        else:
            found = super().answers() + ([(QUALITY, answer)] if answer else [])
        if self.behind:
            (question, first), *rest = found
            found = [(question, f"{self.behind[0].upper()}{self.behind[1:]}. {first}"), *rest]
        return found + ([(ENOUGH, self.certified)] if self.certified else [])

    @property
    def _rows(self) -> str:
        return counted(self.rows, self.row)

    def rests_on(self) -> str:
        """What is read, and what each group is worth."""
        return self.first or super().rests_on()

    def quality(self) -> str:
        """Share of right rows, or of the variance, beside all features and none."""
        own, full, base = (self.judgement.of(who) for who in (EXPLAINER, FULL, BASE))
        if own is None:
            return ""
        if (agrees := own.figures.get("agreement")) is not None:
            share = _hundredths(agrees)
            what = f"explains {share} % of the variance of {self.target}"
            if self.base:
                what = f"agrees with the black box on {share} of 100 {self.row}s"
            return f"It {what}{self._size(own)}."
        return self._of_labels(own, full, base) if self.base else self._of_response(own, full)

    def _of_labels(self, own: ScoreRow, full: ScoreRow | None, base: ScoreRow | None) -> str:
        right = _hundredths(own.figures["accuracy"])
        sentence = f"It predicts {right} of 100 {self.row}s right{self._size(own)}"
        if full is not None:
            sentence += self._beside(own, full, "accuracy")
        if base is not None:
            always = f"always saying {BOLD}{self.base}{PLAIN}"
            rate = _hundredths(base.figures["accuracy"])
            less, error = _less(own, base)
            if math.isnan(error) or abs(less) <= 2.0 * error:
                sentence += f"; that is not shown to be better than {always} ({rate})"
            else:
                sentence += f"; {always} is right in {rate}"
        right_of = [
            f"{right or 'none'} of the {counted(rows, self.row)} of {BOLD}{name}{PLAIN} "
            f"{'is' if right < 2 else 'are'} predicted so"
            for name, rows, right in self.recalls
        ]
        area = own.figures.get("auroc", math.nan)
        if right_of and not math.isnan(area):
            pairs = f"of 100 pairs with different labels {round(100 * area)} are in the right order"
            right_of.append(f"{pairs} (by chance 50)")
        return f"{'; '.join([sentence, *right_of])}."

    def _of_response(self, own: ScoreRow, full: ScoreRow | None) -> str:
        share = own.figures.get("r2", math.nan)
        if math.isnan(share):
            return ""
        other = math.nan if full is None else full.figures.get("r2", math.nan)
        if share <= 0:
            sentence = f"It predicts {self.target} no better than always saying its mean"
            if not math.isnan(other):
                explains = f"explains {_hundredths(other)} %" if other > 0 else "is no better"
                sentence += f"; {self._reader} {explains}"
            return f"{sentence}."
        sentence = f"It explains {_hundredths(share)} % of the variance of {self.target}"
        sentence += self._size(own)
        if full is not None and not math.isnan(other):
            sentence += self._beside(own, full, "r2")
        return f"{sentence}; always saying the mean explains none."

    @property
    def _reader(self) -> str:
        reads = {1: "it", 2: "both"}.get(self.features, f"all {self.features}")
        return f"a predictor that always reads {reads}"

    def _beside(self, own: ScoreRow, full: ScoreRow, figure: str) -> str:
        """Comparison with a predictor that reads everything, by losses of rows in pairs."""
        mine, other = own.figures[figure], full.figures[figure]
        less, error = _less(own, full)
        kind = f"{full.kind}: " if full.kind else ""
        what = f"{self._reader} ({kind}{_hundredths(other)}{'' if self.base else ' %'})"
        if math.isnan(error) or abs(less) <= 2.0 * error:
            surely = ", but less surely" if self.behind else ""
            if abs(mine - other) <= CLOSE:
                return f", about as well as {what}{surely}"
            return f", which is not shown to be better or worse than {what}{surely}"
        return f", {'better' if less < 0 else 'less well'} than {what}"

    def _size(self, own: ScoreRow) -> str:
        if not self.selects or self.features == 1:
            return ""
        size = f"{own.size:.1f}".removesuffix(".0")
        few = "all" if size == str(self.features) else f"{size} of"
        article = "an" if self.row[0] in "aeiou" else "a"
        return f" from {few} {self.features} {self.entries} of {article} {self.row}"


def _less(own: ScoreRow, other: ScoreRow) -> tuple[float, float]:
    """Mean of how much more own loses than another, and its standard error."""
    if own.losses is None or other.losses is None or len(own.losses) < 2:
        return 0.0, math.nan
    more = own.losses - other.losses
    return float(more.mean()), float(more.std(ddof=1) / math.sqrt(len(more)))


def _hundredths(share: float) -> str:
    """A share in hundredths, not rounded to 100.

    Example:
        >>> _hundredths(0.9684), _hundredths(1.0), _hundredths(0.9999), _hundredths(-0.2)
        ('96.8', '100', '99.9', '−20')
    """
    text = f"{100 * share:.1f}" if not 0.999 < share < 1.0 else "99.9"
    text = text.removesuffix(".0").replace("-", "−")
    return "0" if text == "−0" else text


def first_screen(report: Report) -> FirstScreen:
    """Numbers of a first screen."""
    source, plan, learning = report.source, report.plan, report.learning
    names, of_model = source.data.class_names, plan.regime.post_hoc
    is_of_model = of_model or (isinstance(report, RowsReport) and plan.needs_full_predictor)
    screen = FirstScreen(
        OUTPUTS.get(plan.regime, str(source.data.target_name)),
        (),
        source.data.n_entries,
        len(source.test.y),
        report.result.replicates,
        base=None if names is None else commonest(source.train.y, names),
        selects=report.kind is PROBABILITY,
        posterior=plan.posterior is not None,
        of_model=of_model,
        judgement=report.judgement,
        recalls=_recalls(report),
        learned=None if learning is None else learning.shown,
        behind="" if is_of_model else report.judgement.behind,
    )
    if isinstance(report, RowsReport):
        first = f"What matters to predict {source.data.target_name}, by the {report.kind.label}."
        if report.kind is PROBABILITY:
            first = f"To predict {source.data.target_name}, {_size(report)}"
        learned = learning is None or learning.shown
        for line in collapse_messages(report.result.collapse, True, learned)[::-1]:
            first = f"{line[0].upper()}{line[1:]}. {first}"
        behind = screen.behind.replace("features", report.entries)
        row = report.source.data.rows
        screen = replace(screen, first=first, behind=behind, entries=report.entries, row=row)
        return screen if report.words is None else _of_words(screen, report.words)
    gains, certified = report.gains, report.certified
    groups, stand_ins = (None, {}) if gains is None else (gains.groups, gains.worth.stand_ins())
    screen = replace(
        screen,
        groups=groups_read(report.ranking, groups, stand_ins),
        modes=_modes(report),
        in_folds=report.source.fold is not None,
        certified="" if certified is None else certified.answer(),
    )
    return screen if gains is None else replace(screen, rows=gains.rows, rate=_rate(gains.rate))


def _modes(report: TableReport) -> list[Alternative]:
    """Alternatives among the fits, one of them found, of which none says anything beyond all other
    columns: then it would be missed where another one is read. Members of a group stand in for
    each other, which the group says."""
    modes, ranking = report.modes, report.ranking
    if report.gains is None or not modes:
        return modes
    lines = ranking.loc[[name for mode in modes for name in mode.features]]
    groups = report.gains.groups.loc[lines["group"]]
    is_needed = (lines["gain_p"] <= NEEDED).any() or (groups["members"] > 1).any()
    return modes if groups["found"].any() and not is_needed else []


def _recalls(report: Report) -> list[tuple[str, int, int]]:
    """Of each rare class its name, rows, and how many of them the explainer predicts."""
    names, y = report.source.data.class_names, report.source.test.y.cpu().numpy()
    score = report.judgement.of(EXPLAINER)
    if names is None or score is None or score.losses is None:
        return []
    counts = np.bincount(y, minlength=len(names))
    rare = [c for c in np.argsort(counts) if 0 < counts[c] < RARE * len(y) / len(names)]
    return [
        (str(names[c]), int(counts[c]), round(float((1.0 - score.losses[y == c]).sum())))
        for c in rare[:MOST_RARE]
    ]


def _of_words(screen: FirstScreen, words: WordFindings) -> FirstScreen:
    """A first screen that begins with the words that say something of the class."""
    table, texts, target = words.table, f"{words.texts:,} texts", screen.target
    found, tested = table[table["found"]], counted(words.tested, "word")
    groups = [ReadGroup(str(word), (str(word),), math.nan, found=True) for word in found.index]
    screen = replace(screen, groups=groups, rows=words.texts, rate=_rate(f"{FDR}"))
    if found.empty:
        known = f"any of the {tested} that are in {LEAST_TEXTS} of them or more"
        first = f"{texts} do not show that {known} helps to predict {target}. {screen.first}"
        return replace(screen, first=first)
    kinds = found["mostly_in"].where(found["first_lower"] > 0, TOGETHER)
    items = []
    for kind in sorted(kinds.unique(), key=lambda kind: kind == TOGETHER):
        names = [f"{BOLD}{word}{PLAIN}" for word in found.index[kinds == kind]]
        more = [f"{len(names) - NAMED} more"] * (len(names) > NAMED)
        items.append(f"{listed([*names[:NAMED], *more])} ({kind})")
    are, them = ("together they are", "them") if len(found) > 1 else ("it is", "it")
    kept, of_others = (
        round(100 * np.average(part["share"].fillna(0.0), weights=part["texts"]))
        if len(part)
        else 0
        for part in (found, table[~table["found"]])
    )
    first = (
        f"The prediction of {target} rests on {listed(items)}; {are} in "
        f"{_hundredths(words.covered)} of 100 texts, of which {_hundredths(words.right)} of 100 "
        f"are predicted right. The explainer keeps {them} in {kept} of 100 places, other words in "
        f"{of_others}."
    )
    if kept < MORE_OFTEN * of_others:
        first = f"{first[:-1]}: its masks do not tell {them} from others."
    others, rest = words.measured - len(found), words.tested - words.measured
    if others:
        which = f"The other {counted(others, 'word')}"
        if rest:
            which = f"Of the other {rest + others:,} words {others} "
            which += f"{'was' if others == 1 else 'were'} measured, which"
        first += f" {which} {'is' if others == 1 else 'are'} not shown to help."
    return replace(screen, first=first)


def _size(report: RowsReport) -> str:
    """Number of entries that a row keeps."""
    size, data = report.size, report.source.data
    row = f"{'an' if data.rows[0] in 'aeiou' else 'a'} {data.rows}"
    if report.plan.k is not None:
        fewer = ", and one of fewer all it has" if report.source.are_texts else ""
        return f"{row} keeps {report.plan.k} of {data.n_entries} {data.entries}{fewer}."
    return (
        f"{row} keeps {size.mean:.1f} of {data.n_entries} {data.entries} on average "
        f"({size.interval}; nine in ten keep {size.few:.0f} to {size.many:.0f})."
    )


def _rate(rate: str) -> str:
    """Meaning of an error rate."""
    share = float(rate.rpartition(" ")[2])
    if rate.startswith("a family-wise"):
        return f"that any of this is a mistake has a chance of at most {100 * share:g} in 100"
    return f"of such findings at most {100 * share:g} in 100 are expected to be chance"


def commonest(y: Tensor, names: Sequence[object]) -> str:
    """Name of the commonest label."""
    return str(names[int(torch.bincount(y.long(), minlength=len(names)).argmax())])
