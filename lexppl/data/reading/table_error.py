"""Everything that a table has wrong, in one error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True)
class Problem:
    """One thing that a table has wrong.

    Args:
        text: what it is, with what mends it.
        mend: the arguments that mend it; empty where only another table does.
    """

    text: str
    mend: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


class TableError(ValueError):
    """A table that cannot be read as it is, with all that is wrong with it.

    Of one problem the message is its text; of several they stand one a line, and the last line
    has the arguments that mend all that arguments can.

    Args:
        problems: at least one.

    Example:
        >>> constant = Problem("'b' is constant", {"drop": ["b"]})
        >>> print(TableError([constant]))
        'b' is constant
        >>> print(TableError([constant, Problem("'id' has 900 levels", {"drop": ["id"]})]))
        the table has 2 problems:
          - 'b' is constant
          - 'id' has 900 levels
        all at once: drop=['b', 'id']
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0].text
        lines = [f"the table has {len(self.problems)} problems:"]
        lines += [f"  - {problem.text}" for problem in self.problems]
        mends = ", ".join(f"{name}={value!r}" for name, value in self.mends.items())
        return "\n".join([*lines, f"all at once: {mends}"] if mends else lines)

    @property
    def mends(self) -> dict[str, object]:
        """The arguments that mend all that arguments can, lists of columns joined."""
        found: dict[str, object] = {}
        for problem in self.problems:
            for name, value in problem.mend.items():
                known = found.get(name)
                if isinstance(known, list) and isinstance(value, list):
                    found[name] = [*known, *(one for one in value if one not in known)]
                else:
                    found.setdefault(name, value)
        return found


def refuse(problems: Iterable[Problem]) -> None:
    """Raise :class:`TableError` where there are any problems.

    >>> refuse([])
    """
    found = list(problems)
    if found:
        raise TableError(found)
