"""What an explanation reads, and how sure that is, in sentences made of the numbers."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from lexppl.arviz_compatibility import Posterior, group_of
from lexppl.explanation.reading.masks import (
    PROBABILITY,
    SAMPLED,
    chains_are,
    constants_name,
    kind_of,
    mask_means,
)
from lexppl.explanation.reading.modes import LEAST, Alternative, alternatives_of
from lexppl.explanation.reading.tables import selection_table
from lexppl.summary import counted, listed

RESTS_ON, SURENESS = "What does the prediction rest on?", "How sure is that?"
BOLD, PLAIN = "\x02", "\x03"  # Where a name begins and ends in a sentence
NAMED = 6  # Most groups that are named in a sentence
SHOWN_MEMBERS = 4
OTHERS = r" \(\+\d+\)$"  # The end of the name of a group that is named after a member
OFTEN = 0.1  # Share of the rows from which on a group counts as read though it is not found
READ = 0.05  # Share of the rows from which on a group counts as read
AGREE = 0.8  # Agreement from which on fits count as reading a group in the same rows
MOST_MODES, MOST_OF_MODE = 3, 3  # Alternatives that a sentence names, and features of each


@dataclass(frozen=True)
class ReadGroup:
    """A group of features, or a feature, as the explainer reads it; NaN for what is not known.

    Args:
        kept: share of the rows that read it; `lower`, `upper`: its range over fits or its interval.
        found: whether it is found to say something; None where that was not tested.
        nothing: whether all that it may say, alone and beyond the others, is next to nothing.
        stand_ins: members of which either says as much as all, with their weights.
    """

    name: str
    members: tuple[str, ...]
    kept: float
    lower: float = math.nan
    upper: float = math.nan
    agreement: float = math.nan
    found: bool | None = None
    nothing: bool = False
    stand_ins: Mapping[str, float] = field(default_factory=dict)

    @property
    def bold(self) -> str:
        """The group's name in bold, without "and so many others"."""
        return f"{BOLD}{re.sub(OTHERS, '', self.name)}{PLAIN}"

    @property
    def with_members(self) -> str:
        """The name, with its members in brackets where they are shorter than it."""
        if self.stand_ins:
            order = sorted(self.stand_ins, key=lambda name: -self.stand_ins[name])
            weights = _weights(self.stand_ins[name] for name in order)
            return f"{self.bold} ({listed(order, 'or')}: as good, weights {weights})"
        if len(self.members) == 1:
            return self.bold
        words = re.sub(OTHERS, "", self.name)
        if self.name.count(" / ") == len(self.members) - 1:
            return self.bold
        if words in self.members:
            others = [member for member in self.members if member != words]
            shown = listed(others) if len(others) < SHOWN_MEMBERS else f"{len(others)} others"
            return f"{self.bold} (with {shown})"
        rest = [
            " ".join(w for w in re.split(r"[\s_.-]+", m) if w not in self.name.split())
            for m in self.members
        ]
        if len(rest) <= SHOWN_MEMBERS and all(rest) and len(set(rest)) == len(rest):
            items = ", ".join(self.members if rest == list(self.members) else rest)
        else:
            items = counted(len(self.members), "feature")
        return f"{self.bold} ({items})"


@dataclass(frozen=True)
class Reading:
    """The numbers of what is read.

    Args:
        in_folds: whether each fit leaves out a part of the rows.
        rate: the error rate of what is found, such as "at most 1 in 10 …"; None if nothing was
            tested.
        learned: whether predictions are better than the base rate.
        base: the commonest label; None of a response.
        selects: whether a row keeps some features and not others.
        posterior: whether intervals are of a posterior.
        of_model: whether what is predicted is what a model says.
        modes: alternatives among fits, of which one is read in place of the others.
    """

    target: str
    groups: Sequence[ReadGroup]
    features: int
    rows: int
    fits: int = 1
    in_folds: bool = False
    rate: str | None = None
    learned: bool | None = None
    base: str | None = None
    selects: bool = True
    posterior: bool = False
    of_model: bool = False
    modes: Sequence[Alternative] = ()

    def answers(self) -> list[tuple[str, str]]:
        """Each question with its answer."""
        both = [(RESTS_ON, self.rests_on()), (SURENESS, self.sureness())]
        return [(question, answer) for question, answer in both if answer]

    # What it rests on

    def rests_on(self) -> str:
        """What is read, and what is not shown of the rest."""
        shown = [group for group in self.groups if group.found]
        if all(group.found is None for group in self.groups):
            return self.reading([g for g in self.groups if g.kept >= READ or not self.selects])
        if shown:
            lines = [self.reading(shown).removesuffix("."), *self._others()]
            return "; ".join(lines[:2]) + ("" if len(lines) > 1 else ".") + "".join(lines[2:])
        which = f"any of the {self.features} features"
        if self.features == 1:
            which = self.groups[0].bold
        sentence = (
            f"{_capital(self._rows)} do not show that {which} helps to predict {self.target}."
        )
        sentence = sentence.replace(" do not", " does not") if self.rows == 1 else sentence
        read = self._often()
        return f"{sentence} The prediction reads {read}, which may be noise." if read else sentence

    def reading(self, groups: Sequence[ReadGroup]) -> str:
        """Which groups are read, and in how many rows."""
        order = sorted(self._by_all(groups), key=lambda group: -group.kept)
        either = ", or ".join(listed(_bold(mode.features)) for mode in self._alternatives)
        if either:
            weights = _weights(mode.weight for mode in self.modes)
            of = listed([str(mode.fits) for mode in self.modes])
            either = f"either {either}: as good, with weights {weights}, of {of} fits"
        if not order:
            return f"{self._prediction} reads {either or 'hardly any feature'}."
        if not self.selects:
            first = listed(group.with_members for group in order[:3])
            return f"Most weight in {self._prediction.replace('The', 'the', 1)} has {first}."
        more = len(order) - NAMED
        tail = f"; {more} more {'follows' if more == 1 else 'follow'}" if more > 0 else ""
        tail += f", and {either}" if either else ""
        return f"{self._prediction} reads {_shares(order[:NAMED])}{tail}."

    @property
    def _alternatives(self) -> Sequence[Alternative]:
        """The modes, if a sentence holds them and fits agree on one: else fits differ, no more."""
        most = max((len(mode.features) for mode in self.modes), default=0)
        is_short = len(self.modes) <= MOST_MODES and most <= MOST_OF_MODE
        several = len(self.modes) < sum(mode.fits for mode in self.modes)
        return self.modes if is_short and (several or self.fits == 2) else ()

    def _by_all(self, groups: Sequence[ReadGroup]) -> list[ReadGroup]:
        """Groups that are no alternatives."""
        either = {name for mode in self._alternatives for name in mode.features}
        return [group for group in groups if not either.issuperset(group.members)]

    def _often(self) -> str:
        """Groups that are read often, and not found."""
        often = [g for g in self.groups if not g.found and g.kept >= OFTEN]
        return _shares(sorted(often, key=lambda g: -g.kept)[:NAMED])

    def _others(self) -> list[str]:
        """What is not shown of the other groups, and that some of them say next to nothing."""
        others = [group for group in self.groups if not group.found]
        count = sum(len(group.members) for group in others)
        if not count:
            return []
        none = sum(len(group.members) for group in others if group.nothing)
        what, them = ("feature", "it") if count == 1 else (f"{count} features", "them")
        often = self._often()
        read = f", though the prediction reads {often}" if often else ""
        if none == count:
            says = "says" if count == 1 else "say"
            line = f"the other {what} {says} next to nothing, alone or beyond all others{read}."
        elif none:
            line = f"of the other {what} {none} {'says' if none == 1 else 'say'} next to nothing,"
            line += f" and for the rest {self._rows} are not enough to tell{read}."
        else:
            line = f"for the other {what} {self._rows} are not enough to tell{read}."
        return [line, *[f" The model itself may use {them}."] * self.of_model]

    # How sure that is

    def sureness(self) -> str:
        """By what it is known, and whether the fits agree."""
        shown, lines = [group for group in self.groups if group.found], []
        if shown and self.rate:
            shows = "Each of these says something" if len(shown) > 1 else "It says something"
            lines.append(
                f"{shows}, alone or beyond all others, on {self._rows} that were judged by "
                f"predictors which had not learned from them; {self.rate}"
            )
        elif self.rate and self.learned and self.base:
            lines.append("It predicts better than guessing, by what these rows do not show")
        elif self.rate:
            lines.append(f"{_capital(self._rows)} may be too few to show what little there is")
        if self.learned is False:
            reads = any(group.kept >= READ for group in self.groups) or not self.selects
            lines.append(
                "beyond that its predictions are not shown to be better than guessing"
                if shown
                else "on rows that it has not seen its predictions are no better than guessing"
                + ", so that what it reads says little" * reads
            )
        read = self.groups if self.rate is None else shown
        lines += self._of_fits(read) if read or self.rate is None else []
        return _capital("; ".join(lines)) + "." if lines else ""

    def _of_fits(self, read: Sequence[ReadGroup]) -> list[str]:
        read = sorted(self._by_all(read), key=lambda g: -g.kept)
        read = [g for g in read if g.kept >= READ or not self.selects][:NAMED]
        if self.posterior:
            known = [g for g in read if not math.isnan(g.lower)][:3]
            items = [f"{g.bold} in {_span(g)} of 100 rows" for g in known]
            sentence = f"by the posterior of its weights it reads {listed(items)}"
            return [sentence] * (bool(items) and self.selects)
        if self.fits == 1:
            return ["there is one fit, so nothing says how far this depends on its seed"]
        known = [g for g in read if not math.isnan(g.agreement)]
        if not known:
            return []
        fits = f"{self.fits} fits"
        fits += f", each without one of {self.fits} parts of the rows," if self.in_folds else ""
        same = [g for g in known if g.agreement >= AGREE]
        apart = [g for g in known if g.agreement < AGREE]
        what = "it" if len(known) == 1 else "these"
        if self.rate is not None and len(known) < sum(bool(g.found) for g in self.groups):
            what = listed(g.bold for g in known)
        lines = [f"the {fits} agree on where {what} matter{'s' * (len(known) == 1)}"]
        if apart:
            span = " ({} of 100)".format if self.selects else lambda _: ""
            items = [f"{g.bold}{span(_span(g))}" for g in apart]
            what = "which rows read " * self.selects
            alike = listed(g.bold for g in same)
            agree = f"agree on {alike}, but " if same else ""
            lines = [f"the {fits} {agree}differ on {what}{listed(items)}"]
        return lines

    @property
    def _prediction(self) -> str:
        return f"The prediction of {self.target}" if self.target else "The prediction"

    @property
    def _rows(self) -> str:
        return counted(self.rows, "row")


def _shares(groups: Sequence[ReadGroup]) -> str:
    """Groups with the share of the rows that read them, by falling share."""
    return listed(
        f"{listed(group.with_members for group in alike)} {phrase}"
        for phrase, alike in groupby(groups, key=lambda g: share_of(g.kept))
    )


def _bold(names: Iterable[str]) -> list[str]:
    return [f"{BOLD}{name}{PLAIN}" for name in names]


def _weights(weights: Iterable[float]) -> str:
    return listed([f"{weight:.2f}".removeprefix("0") for weight in weights])


def html(text: str) -> Markup:
    """A sentence with its names in bold, escaped."""
    return Markup(str(escape(text)).replace(BOLD, "<strong>").replace(PLAIN, "</strong>"))


def plain(text: str) -> str:
    """A sentence without marks."""
    return text.replace(BOLD, "").replace(PLAIN, "")


def share_of(share: float) -> str:
    """In how many rows, in words.

    >>> share_of(0.98), share_of(0.52), share_of(0.88)
    ('in nearly every row', 'in half of the rows', 'in 9 of 10 rows')
    """
    if share >= 0.95:
        return "in nearly every row"
    if share < READ:
        return "in fewer than 1 of 20 rows"
    tenths = min(9, max(1, round(10 * share)))
    return "in half of the rows" if tenths == 5 else f"in {tenths} of 10 rows"


def _span(group: ReadGroup) -> str:
    low, high = round(100 * group.lower), round(100 * group.upper)
    return f"{low}" if low == high else f"{low} to {high}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def groups_read(
    ranking: pd.DataFrame,
    groups: pd.DataFrame | None,
    stand_ins: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
) -> list[ReadGroup]:
    """The groups of a ranking, or its features where there are none."""
    table = ranking if groups is None else groups
    if "agreement" not in table:
        table = table.assign(agreement=math.nan)
    column = str(ranking.columns[0])
    read = []
    for line in table.reset_index(names="name").to_dict("records"):
        features = ranking if groups is None else ranking[ranking["group"] == line["name"]]
        members = (str(line["name"]),) if groups is None else tuple(map(str, features.index))
        numbers = (float(line[name]) for name in (column, "lower", "upper", "agreement"))
        share, low, high, agreement = numbers
        tested = None if groups is None else bool(line["found"])
        ends = [float(line.get(name, math.nan)) for name in ("first_upper", "gain_upper")]
        known: dict[str, Any] = {"found": tested, "nothing": max(ends) < LEAST}
        known["stand_ins"] = stand_ins.get(str(line["name"]), {})
        read.append(ReadGroup(str(line["name"]), members, share, low, high, agreement, **known))
    return read


def reading_of(posterior: Posterior, target: str = "") -> Reading:
    """The numbers of what a posterior of a table's rows reads; nothing was tested.

    Raises:
        ValueError: rows that are no table, or that share a mask.
    """
    means = mask_means(posterior)
    x = group_of(posterior, constants_name(posterior))["x"]
    if x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        raise ValueError(
            f"answers are of a table's rows (N, D); those of the posterior are {x.dtype} of shape "
            f"{x.shape}: plot_selection_map and highlighted_text are of images and of texts"
        )
    table = selection_table(posterior)
    return Reading(
        target,
        groups_read(table, None),
        len(table),
        means.sizes["row"],
        means.sizes["chain"],
        selects=kind_of(posterior) is PROBABILITY,
        posterior=chains_are(posterior).startswith(SAMPLED),
        modes=alternatives_of(posterior),
    )
