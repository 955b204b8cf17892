"""The class of explanations: ArviZ's own, with a first screen in a notebook and other penalties."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from lexppl.arviz_compatibility import (
    Posterior,
    group_names,
    group_of,
    posterior_class,
    posterior_of,
    posterior_when_read,
)
from lexppl.explanation.explained_rows import ExplainedRows
from lexppl.explanation.layout.importance_kind import PROBABILITY, kind_of, mask_means
from lexppl.explanation.layout.mask_groups import constants_name
from lexppl.explanation.meanings import SAMPLED, chains_are
from lexppl.explanation.reading.ranking import selection_table
from lexppl.explanation.reading.sentences import Reading, groups_read, html
from lexppl.summary import counted

SHOWN = 10
"""Features whose numbers stand below the sentences."""
AGAIN = "_again"


def explanation_of(found: ExplainedRows, again: Callable[..., Posterior]) -> Posterior:
    """An explanation with groups built at first use; `again` explains the rows at a `penalty`."""
    explanation = posterior_when_read(found.groups, found.attrs, explanation_class)
    object.__setattr__(explanation, AGAIN, again)
    return explanation


@cache
def explanation_class() -> Any:
    """A subclass of ArviZ's class; copies and pickles are ArviZ's own, and hold no fit."""
    kind = posterior_class()

    class Explanation(kind):  # type: ignore[misc, valid-type]
        def at(self, *, penalty: float) -> Posterior:
            """The same rows with the same draws and seed at another λ of a fit of a range of them.

            Raises:
                ValueError: a fit of one λ; a λ outside its range.
            """
            return object.__getattribute__(self, AGAIN)(penalty=penalty)

        def _repr_html_(self) -> str:
            return str(first_screen(self) or super()._repr_html_())

        def __reduce_ex__(self, protocol: Any) -> Any:
            groups = {name: group_of(self, name) for name in group_names(self)}
            return itemgetter(0), ((posterior_of(groups, self.attrs),),)

        def __deepcopy__(self, memo: Any) -> Posterior:
            function, arguments = self.__reduce_ex__(4)
            return function(*copy.deepcopy(arguments, memo))

    return Explanation


def first_screen(posterior: Posterior) -> Markup | None:
    """What is read and how sure that is, as HTML; None but for tables with masks by row."""
    means = mask_means(posterior, by_row=False)
    x = group_of(posterior, constants_name(posterior))["x"]
    if "row" not in means.dims or x.ndim != 2 or not np.issubdtype(x.dtype, np.floating):
        return None
    table = selection_table(posterior)
    rows, features = means.sizes["row"], len(table)
    reading = Reading(
        "",
        groups_read(table, None),
        features,
        rows,
        means.sizes["chain"],
        selects=kind_of(posterior) is PROBABILITY,
        posterior=chains_are(posterior).startswith(SAMPLED),
    )
    parts = [
        Markup("<p><strong>{}</strong><br>{}</p>").format(question, html(answer))
        for question, answer in reading.answers()
    ]
    numbers = table.head(SHOWN).to_html(float_format="{:.3f}".format, na_rep="–", border=0)
    summary = f"{counted(rows, 'row')}, {counted(features, 'feature')}: the first by their numbers"
    parts.append(Markup(f"<details><summary>{escape(summary)}</summary>{numbers}</details>"))
    return Markup().join(parts)
