"""Words by how much of them is kept over all texts."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t
from torch import Tensor

from lexppl.data import Vocabulary
from lexppl.data.texts import PADDING
from lexppl.explanation.reading.masks import ATTRIBUTION, ImportanceKind

UNKNOWN_WORDS = "(unknown words)"


def ranked_words(
    values: NDArray[np.floating],
    x: Tensor,
    vocabulary: Vocabulary,
    kind: ImportanceKind,
    predicted: NDArray[np.int64],
    class_names: tuple[str, ...],
) -> pd.DataFrame:
    r"""The words of texts by what is kept of them, summed over their places:

        s_w = Σ_n Σ_t E[z_nt | x_n] 1{x_nt = w}.

    Args:
        values: E[z | x] of R replicates, `(R, N, T)`.
        x: word numbers, `(N, T)`.
        vocabulary: the words.
        kind: what the values are; attributions have a sign, and are ranked by their size.
        predicted: the class that is predicted of each text, `(N,)`.
        class_names: of the C classes.

    Returns:
        indexed by `word`, largest first: `kept`, s_w, the mean over replicates; `lower` and
        `upper`, its 95 % t-interval over them, NaN of one; `count`, how often the word stands in
        the texts; `share`, kept / count; `mostly_in`, the predicted class whose texts keep most of
        it, by text.

    Example:
        >>> from lexppl.explanation.reading.masks import PROBABILITY
        >>> x = Tensor([[2, 3, 0], [3, 3, 2]])
        >>> values = np.array([[[0.9, 0.1, 0.0], [0.2, 0.0, 1.0]]])
        >>> table = ranked_words(
        ...     values, x, Vocabulary(["good", "film"]), PROBABILITY, np.array([0, 1]), ("a", "b"))
        >>> table[["kept", "count", "mostly_in"]].round(1).to_dict("index")["good"]
        {'kept': 1.9, 'count': 2, 'mostly_in': 'b'}
    """
    numbers = x.detach().cpu().numpy().astype(np.int64)
    there = numbers != PADDING
    size, flat = len(vocabulary), numbers[there]
    sums = np.stack([np.bincount(flat, one[there], minlength=size) for one in values])
    counts = np.bincount(flat, minlength=size)
    mean = sums.mean(0)
    half = np.full(size, np.nan)
    if len(sums) > 1:
        half = t.ppf(0.975, len(sums) - 1) * sums.std(0, ddof=1) / np.sqrt(len(sums))
    lower = mean - half if kind is ATTRIBUTION else (mean - half).clip(0.0)
    classes = np.repeat(predicted[:, None], numbers.shape[1], axis=1)[there]
    texts = np.bincount(predicted, minlength=len(class_names)).clip(1)
    every = np.abs(values.mean(0))[there]
    in_class = np.stack(
        [
            np.bincount(flat[classes == c], every[classes == c], minlength=size) / texts[c]
            for c in range(len(class_names))
        ]
    )
    table = pd.DataFrame(
        {
            "kept": mean,
            "lower": lower,
            "upper": mean + half,
            "count": counts,
            "share": mean / counts.clip(1),
            "mostly_in": np.array(class_names, dtype=object)[in_class.argmax(0)],
        },
        index=pd.Index([vocabulary.word(n) or "" for n in range(size)], name="word"),
    )
    table = table[counts > 0].rename(index={"?": UNKNOWN_WORDS})
    return table.loc[table["kept"].abs().sort_values(ascending=False, kind="stable").index]
