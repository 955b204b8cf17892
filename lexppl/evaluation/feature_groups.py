"""Groups of features that depend on each other, which are judged together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from scipy.stats import rankdata
from torch import Tensor

from lexppl.argument_checks import fraction
from lexppl.data.stratification import evenly

CUT = 0.7
"""Dependence from which features are one group: a correlation of .7 is half of the variance."""
BINS = (4, 20)  # Fewest and most parts of a number's range, about the cube root of the rows
DEPENDENCE_ROWS = 5000
MOST_STEMS, LONGEST_TITLE = 3, 40
"""Most different words in the name of a group, and most letters of it."""


@dataclass(frozen=True)
class FeatureGroups:
    """K groups of G mask entries, each entry in one.

    Args:
        members: the entries of each group, from 0.

    Raises:
        ValueError: an entry in no group or in two, or other than one name of its own a group.

    Example:
        >>> FeatureGroups.named({"size": ["width", "height"]}, ["age", "width", "height"])
        FeatureGroups(names=('size', 'age'), members=((1, 2), (0,)))
    """

    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        every = sorted(entry for group in self.members for entry in group)
        if every != list(range(len(every))) or not all(self.members):
            raise ValueError(f"groups must have each of 0 to {len(every) - 1} once, not {every}")
        if len(set(self.names)) != len(self.members) or len(self.names) != len(self.members):
            raise ValueError(
                f"{len(self.members)} groups need as many different names, which no column outside "
                f"them has; they have {list(self.names)}"
            )

    @classmethod
    def alone(cls, entry_names: Sequence[str]) -> Self:
        """Each entry by itself."""
        return cls(tuple(map(str, entry_names)), tuple((g,) for g in range(len(entry_names))))

    @classmethod
    def named(cls, groups: Mapping[str, Sequence[str]], entry_names: Sequence[str]) -> Self:
        """Groups by the names of their entries; entries in none are each by themselves."""
        names = list(map(str, entry_names))
        owner: dict[str, str] = {}
        for group, members in groups.items():
            if not isinstance(members, Sequence) or isinstance(members, str) or not members:
                raise ValueError(f"group {group!r} must be a list of columns; it is {members!r}")
            for member in map(str, members):
                if member not in names or member in owner:
                    raise ValueError(
                        f"group {group!r} has the column {member!r}, which is in the group "
                        f"{owner[member]!r} too: leave it in one"
                        if member in owner
                        else f"group {group!r} has the column {member!r}, which the data does not "
                        f"have: it has {', '.join(names)}"
                    )
                owner[member] = str(group)
        alone = [name for name in names if name not in owner]
        places = [tuple(names.index(str(m)) for m in members) for members in groups.values()]
        places += [(names.index(name),) for name in alone]
        return cls((*map(str, groups), *alone), tuple(places))

    @classmethod
    def dependent(
        cls,
        x: Tensor,
        entries: Sequence[int],
        entry_names: Sequence[str],
        cut: float = CUT,
        markers: Sequence[int] = (),
    ) -> Self:
        """Groups of entries that depend on each other, by average linkage of :func:`dependence`,
        named by the words that their members share and other columns hardly have, by those of each
        member (`mean radius` and `worst area`: `radius / area`), or by the member that the others
        depend on most.

        Args:
            x: rows, `(N, D)`.
            entries: of each feature its mask entry, `D`, as in :class:`lexppl.data.Dataset`.
            entry_names: of the G entries.
            cut: dependence from which entries are one group, in (0, 1).
            markers: as :attr:`lexppl.data.TableEncoding.markers`.
        """
        cut = fraction("cut", cut)
        names = list(map(str, entry_names))
        if len(names) < 2:
            return cls.alone(names)
        depends = dependence(x, entries, markers)
        tree = linkage(squareform(1.0 - depends, checks=False), "average")
        label = fcluster(tree, 1.0 - cut, "distance")
        members = [tuple(np.flatnonzero(label == number).tolist()) for number in np.unique(label)]
        members.sort()
        titles: list[str] = []
        for group in members:
            middle = group[int(depends[np.ix_(group, group)].sum(1).argmax())]
            outside = [name for entry, name in enumerate(names) if entry not in group]
            title = _title([names[entry] for entry in group], outside, names[middle])
            if title in outside or title in titles:
                title = f"{names[middle]} (+{len(group) - 1})"
            titles.append(f"{title} more" if title in outside else title)
        return cls(tuple(titles), tuple(members))

    def kept(self, probability: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability that a member of each group is kept, `(…, G)` to `(…, K)`, of entries that
        are independent given x.

        Example:
            >>> FeatureGroups(("size", "age"), ((0, 2), (1,))).kept(np.array([0.5, 0.1, 0.5]))
            array([0.75, 0.1 ])
        """
        by_group = [1.0 - (1.0 - probability[..., list(group)]).prod(-1) for group in self.members]
        return np.stack(by_group, -1)

    @property
    def several(self) -> bool:
        """Whether a group has several members."""
        return any(len(group) > 1 for group in self.members)

    def of_entries(self) -> NDArray[np.int64]:
        """The group of each entry, `(G,)`."""
        groups = np.empty(sum(map(len, self.members)), np.int64)
        for number, group in enumerate(self.members):
            groups[list(group)] = number
        return groups


def _title(members: Sequence[str], outside: Sequence[str], middle: str) -> str:
    """The name of a group, of words that stand in more of its members than of other columns."""
    if len(members) == 1:
        return members[0]
    inner, outer = ([_words(name) for name in names] for names in (members, outside))
    special = [[w for w in words if _count(w, inner) > _count(w, outer)] for words in inner]
    common = [word for word in special[0] if all(word in words for words in special)]
    stems = [
        " ".join(words) if any(map(str.isalpha, "".join(words))) else name
        for words, name in zip(special, members, strict=True)
    ]
    title = " ".join(common) or " / ".join(dict.fromkeys(stems))
    few = len(set(stems)) <= MOST_STEMS or common
    if few and len(title) <= LONGEST_TITLE and any(map(str.isalpha, title)):
        return title
    return f"{middle} (+{len(members) - 1})"


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[\s_./-]+", name) if word]


def _count(word: str, names: Sequence[Sequence[str]]) -> int:
    return sum(word in words for words in names)


def dependence(
    x: Tensor, entries: Sequence[int], markers: Sequence[int] = ()
) -> NDArray[np.float64]:
    """How much mask entries depend on each other, `(G, G)`, from 0 to 1: the square root of

        1 − (SS_within / (N − b)) / (SS_total / (N − 1)),

    the larger of both ways, 0 where it is negative, with entry i in b bins, levels or intervals of
    equal numbers of rows, and entry j by its rank or the indicators of its levels (Goodman and
    Kruskal's τ); of two numbers at least |ρ|, Spearman's. N counts the rows in which neither is
    missing, by `markers` as :attr:`lexppl.data.TableEncoding.markers`; 5,000 rows are read at most,
    an even choice.
    """
    every = x[evenly(len(x), DEPENDENCE_ROWS)].detach().double().cpu().numpy()
    is_value = [m != feature for feature, m in enumerate(markers or [-1] * every.shape[1])]
    values, owner = every[:, is_value], np.asarray(entries)[is_value]
    there = np.ones(values.shape)
    if markers:
        marker = np.asarray(markers)[is_value]
        there = np.where(marker < 0, 1.0, 1.0 - every[:, marker])
    rows = len(values)
    numbers = np.array([len(np.unique(column)) > 2 for column in values.T])
    ranks = np.stack(
        [rankdata(c) / rows if n else c for c, n in zip(values.T, numbers, strict=True)], 1
    )
    parts = int(np.clip(round(rows ** (1 / 3)), *BINS))
    binned = np.where(numbers, np.ceil(ranks * parts), ranks)
    centred = (ranks - ranks.mean(0)) * there
    depends = np.eye(owner.max() + 1)
    for entry in range(len(depends)):
        of_entry = owner == entry
        _, bin_of = np.unique(binned[:, of_entry], axis=0, return_inverse=True)
        one_hot = np.eye(bin_of.max() + 1)[bin_of.reshape(-1)] * there[:, of_entry][:, :1]
        counts, sums = one_hot.T @ there, one_hot.T @ centred
        count = counts.sum(0)
        with np.errstate(divide="ignore", invalid="ignore"):
            between = np.nan_to_num(np.square(sums) / counts).sum(0)
            squares = one_hot.sum(1) @ np.square(centred)
            total = squares - np.nan_to_num(np.square(sums.sum(0)) / count)
            free = np.maximum(count - (counts > 0).sum(0), 0.0)
            within = np.bincount(owner, (squares - between) / free)
            share = 1.0 - within / np.bincount(owner, total / (count - 1.0))
        depends[entry] = np.sqrt(np.nan_to_num(share, posinf=0.0, neginf=0.0).clip(0.0, 1.0))
    single = [e for e in range(len(depends)) if (owner == e).sum() == 1 and numbers[_of(owner, e)]]
    if len(single) > 1:
        columns = [_of(owner, entry) for entry in single]
        scores = np.where(there[:, columns] > 0, ranks[:, columns], np.nan)
        both = pd.DataFrame(scores).corr().fillna(0.0).abs().to_numpy()
        depends[np.ix_(single, single)] = np.maximum(depends[np.ix_(single, single)], both)
    depends = np.maximum(depends, depends.T).clip(0.0, 1.0)
    np.fill_diagonal(depends, 1.0)
    return depends


def _of(owner: NDArray[np.int64], entry: int) -> int:
    return int(np.flatnonzero(owner == entry)[0])
