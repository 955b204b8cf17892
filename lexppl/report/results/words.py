"""Words of texts: what they say of the classes, and how often the explainer keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import rel_entr
from scipy.stats import t
from torch import Tensor

from lexppl.data.texts import FIRST, PADDING, Vocabulary
from lexppl.evaluation.importance import FDR, importance

LEAST_TEXTS = 5  # That have a word which is tested
MEASURED = 24  # Most words that are measured, each with predictors of its own: seconds
UNKNOWN_WORDS = "(unknown words)"
MEASURES = ["first", "first_lower", "first_upper", "last", "last_lower", "last_upper", "p"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WordFindings:
    """What words say of the classes.

    Args:
        table: of :func:`word_table`, those that are found first.
        texts: in which words were measured.
        tested: words that are in :data:`LEAST_TEXTS` texts or more, of which a false discovery rate
            is.
        covered, right: share of the held-out texts that have a word which is found, and of these
            the share whose class is predicted; NaN of none.
    """

    table: pd.DataFrame
    texts: int
    tested: int
    covered: float = np.nan
    right: float = np.nan

    @property
    def measured(self) -> int:
        """Number of words that were measured."""
        return int(self.table["p"].notna().sum())


def word_table(
    masks: NDArray[np.floating],
    held_out: Tensor,
    x: Tensor,
    y: Tensor,
    vocabulary: Vocabulary,
    class_names: Sequence[str],
) -> pd.DataFrame:
    """Words by how much of them is kept for how often they are there.

    Args:
        masks: E[z | x] of R replicates and the held-out texts, `(R, M, T)`.
        held_out, x: word numbers of those, `(M, T)`, and of all texts, `(N, T)`.
        y: class of each of all texts, `(N,)`, or its probabilities, `(N, C)`.

    Returns:
        indexed by `word`: `texts`, of N with the word; `share`, the mean of E[z | x] over the
        places of the held-out texts where it stands, with its 95 % t-interval over replicates,
        `share_lower`, `share_upper`, of probabilities within 0 and 1; `mostly_in`, the class c of
        the largest P(c | word) / P(c);
        `deviance`, `2 Σ O log(O / E)` of its table with the class. In the order of Pearson's
        residual `(|s_w| − n_w s̄) / √(n_w s̄)`, s_w the sum of E[z | x] over the n_w places and s̄ the
        mean of `|s_w| / n_w` over all, so that no word is first for how frequent it is; unknown
        words are last.

    Example:
        >>> x = Tensor([[2, 3, 0], [3, 3, 2]])
        >>> masks, y = np.array([[[0.9, 0.1, 0.0], [0.2, 0.0, 1.0]]]), torch.tensor([0, 1])
        >>> table = word_table(masks, x, x, y, Vocabulary(["good", "film"]), ("a", "b"))
        >>> table[["texts", "share"]].round(2).to_dict("index")["good"]
        {'texts': 2, 'share': 0.95}
    """
    size, numbers = len(vocabulary), held_out.cpu().numpy().astype(np.int64)
    there = numbers != PADDING
    counts = np.bincount(numbers[there], minlength=size)
    sums = np.stack(
        [np.bincount(numbers[there], of_replicate[there], minlength=size) for of_replicate in masks]
    )
    classes = y.cpu().double() if y.dim() == 2 else torch.eye(len(class_names)).double()[y.cpu()]
    total = classes.sum(0).numpy()
    by_class: Array = presence(x, size).T @ classes.numpy()
    expected = by_class.sum(1, keepdims=True) * total / len(x)
    amount = np.abs(sums.mean(0))
    amount_by_chance = counts * (amount.sum() / counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = sums / counts
        residual = (amount - amount_by_chance) / np.sqrt(amount_by_chance)
        lift = np.nan_to_num(by_class / expected)
    half = np.full(size, np.nan)
    if len(sums) > 1:
        half = t.ppf(0.975, len(sums) - 1) * shares.std(0, ddof=1) / np.sqrt(len(sums))
    deviance = rel_entr(by_class, expected) + rel_entr(total - by_class, total - expected)
    mean = shares.mean(0)
    ends = np.stack([mean - half, mean + half])
    if masks.min() >= 0.0 and masks.max() <= 1.0:
        ends = ends.clip(0.0, 1.0)
    table = pd.DataFrame(
        {
            "texts": by_class.sum(1).round().astype(int),
            "share": mean,
            "share_lower": ends[0],
            "share_upper": ends[1],
            "mostly_in": np.array(class_names, dtype=object)[lift.argmax(1)],
            "deviance": 2.0 * deviance.sum(1),
        },
        index=pd.Index([vocabulary.word(n) or "" for n in range(size)], name="word"),
    )
    residual = np.nan_to_num(residual, nan=-np.inf)
    residual[:FIRST] = -np.inf
    order = np.argsort(-residual, kind="stable")
    order = np.concatenate([order[order >= FIRST], [FIRST - 1]])
    table = table.iloc[order]
    return table[table["texts"] > 0].rename(index={"?": UNKNOWN_WORDS})


def presence(x: Tensor, size: int) -> sparse.csr_matrix:
    """Which words are in texts `(N, T)` of word numbers, of `size`: 0 or 1, `(N, size)`."""
    numbers = x.cpu().numpy().astype(np.int64)
    rows, places = np.nonzero(numbers != PADDING)
    ones = np.ones(len(rows))
    every = sparse.csr_matrix((ones, (rows, numbers[rows, places])), (len(x), size))
    return (every > 0).astype(np.float64)


def found_words(
    table: pd.DataFrame, x: Tensor, y: Tensor, vocabulary: Vocabulary, seed: int
) -> WordFindings:
    """What words say of the class alone and beyond the others that are measured, by
    :func:`lexppl.evaluation.importance` of their presence in a text.

    Those are measured that the explainer keeps most for how often they are there, and those that
    depend most on the class, by turns. They are chosen by the same texts, and so the others count
    in the number of tests, with p = 1.

    Args:
        table: of :func:`word_table`.
        x, y: as there.

    Returns:
        the table with `first` and `last` of :meth:`lexppl.evaluation.Importance.group_table`, their
        intervals, `p` and `found`: words that are found first, then the others that are measured,
        each by the larger of first and last, then all others in their order.
    """
    tested = table[(table["texts"] >= LEAST_TEXTS) & (table.index != UNKNOWN_WORDS)]
    by_turns = np.stack([tested.index, tested.sort_values("deviance", ascending=False).index], 1)
    names = list(dict.fromkeys(by_turns.flatten()))[:MEASURED]
    tests = table.drop(columns="deviance")
    tests[MEASURES] = np.nan
    tests["found"] = False
    if names:
        columns = presence(x, len(vocabulary))[:, vocabulary.numbers(names)].toarray()
        worth = importance((torch.from_numpy(columns).float(), y), seed=seed)
        measured = worth.group_table(fdr=FDR * len(names) / len(tested))
        measured.index = pd.Index([names[int(name[1:]) - 1] for name in measured.index])
        tests.loc[measured.index, [*MEASURES, "found"]] = measured[[*MEASURES, "found"]]
        order = measured.sort_values("found", ascending=False, kind="stable").index
        tests = tests.loc[[*order, *(word for word in table.index if word not in set(names))]]
    return WordFindings(tests, len(x), len(tested))
