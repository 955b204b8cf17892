"""Summaries of objects, in at most ten lines of text or as a small table in a notebook."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from torch import nn

MOST_LINES = 10
WIDEST = 100  # Characters of a line's text, beside its label
LONGEST_NAME = 24
PRIORS = "_pyro_samples"  # Where a Pyro module keeps its weights with priors
NUMBERS = ("k", "weight")  # What is shown of a part beside its class, where it has it


@dataclass(frozen=True)
class Summary:
    """A heading and lines by label; empty ones are left out."""

    heading: str
    lines: Mapping[str, str | None]

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Labels and texts, cut to ten lines with the heading, and each to a line's width."""
        lines = [(label, _cut(text)) for label, text in self.lines.items() if text]
        return lines[: MOST_LINES - 1]

    def __str__(self) -> str:
        wide = max((len(label) for label, _ in self.shown), default=0)
        lines = [f"  {label:<{wide}}  {text}" for label, text in self.shown]
        return "\n".join([_cut(self.heading), *lines])

    def html(self) -> str:
        """A table with the heading as its caption; all text is escaped."""
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(label)}</th>'
            f'<td style="text-align:left">{escape(text)}</td></tr>'
            for label, text in self.shown
        )
        caption = f'<caption style="text-align:left">{escape(_cut(self.heading))}</caption>'
        return f"<table>{caption}<tbody>{rows}</tbody></table>"


class Summarised:
    """Something whose `repr` is its summary."""

    @abstractmethod
    def summarised(self) -> Summary:
        """Summary of the object: a heading and named lines."""

    def __repr__(self) -> str:
        return str(self.summarised())

    def _repr_html_(self) -> str:
        return self.summarised().html()


def counted(count: int, noun: str, several: str | None = None) -> str:
    """A number and its noun, as "1,200 rows"."""
    return f"{count:,} {noun if count == 1 else several or noun + 's'}"


def listed(names: Iterable[str], last: str = "and") -> str:
    """Names with commas, and a word before the last."""
    words = list(names)
    both = [", ".join(words[:-1]), words[-1]] if len(words) > 1 else words
    return f" {last} ".join(both)


def some_of(names: Iterable[object], most: int = 5) -> str:
    """The first of names or words, and how many more there are."""
    words = [str(name) for name in names]
    more = len(words) - most
    return ", ".join(words) if more <= 0 else f"{', '.join(words[:most])} and {more} more"


def number_text(value: float, scale: float = 0.0) -> str:
    """A number as it is read: four digits, and three of its scale, or all before the point.

    >>> number_text(0.123456), number_text(18130.55), number_text(2.5e12)
    ('0.1235', '18131', '2.5e+12')
    >>> number_text(1000000.5678, scale=2.0), number_text(170.25, scale=9.0)
    ('1000000.57', '170.2')
    """
    size, digits = abs(value), 4
    if 0.0 < scale < size < math.inf:
        digits = min(15, max(4, 3 + round(math.log10(size) - math.log10(scale))))
    whole = float(value).is_integer() or size >= 10.0 ** (digits - 1)
    return f"{value:.0f}" if whole and size < 1e9 else f"{value:.{digits}g}"


def short(name: object) -> str:
    """A name, cut to 24 characters."""
    return _cut(str(name), LONGEST_NAME)


def parts_of(program: Any) -> dict[str, str]:
    """The parts of a program by role, each by its class and how many numbers it learns."""
    if not isinstance(program, nn.Module):
        return {}
    parts = {name: _part(part) for name, part in program.named_children()}
    return {name: text for name, text in parts.items() if text}


def in_range(values: Sequence[float]) -> str:
    """A number, or the least and the largest of several.

    Example:
        >>> in_range([0.51, 0.4987]), in_range([2.0])
        ('0.499 to 0.510', '2.000')
    """
    low, high = f"{min(values):.3f}", f"{max(values):.3f}"
    return low if low == high else f"{low} to {high}"


def _part(part: nn.Module) -> str:
    if isinstance(part, nn.ModuleList):
        return ", ".join(_part(child) for child in part)
    count = sum(p.numel() for p in part.parameters() if p.requires_grad)
    numbers = [f"{name}={getattr(part, name):g}" for name in NUMBERS if _is_number(part, name)]
    drawn = sum(len(getattr(module, PRIORS, ())) for module in part.modules())
    details = [*numbers, f"{count:,}" if count else ""]
    details.append(f"{counted(drawn, 'weight')} with a prior" if drawn else "")
    within = ", ".join(filter(None, details))
    name = type(part).__name__
    if drawn and type(part).__bases__[0].__name__ == name.removeprefix("Pyro"):
        # Pyro's name of a class that it was made of.
        name = name.removeprefix("Pyro")
    return name + (f" ({within})" if within else "")


def _is_number(part: nn.Module, name: str) -> bool:
    return isinstance(getattr(part, name, None), int | float)


def _cut(text: str, most: int = WIDEST) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
