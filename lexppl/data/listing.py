"""How many names and counts are told in one line of an error message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def listed(names: Iterable[object], most: int = 8) -> str:
    """Quote up to ``most`` names and say how many more there are.

    >>> listed(["a", "b"])
    "'a', 'b'"
    >>> listed("abcd", most=2)
    "'a', 'b' and 2 more"
    """
    words = [repr(str(name)) for name in names]
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"


def counted(counts: Mapping[str, int], most: int = 8) -> str:
    """Quote up to ``most`` names, each with its count, and say how many more there are.

    >>> counted({"age": 3, "job": 1})
    "'age' (3), 'job' (1)"
    """
    words = [f"{name!r} ({count})" for name, count in counts.items()]
    if len(words) <= most:
        return ", ".join(words)
    return f"{', '.join(words[:most])} and {len(words) - most} more"
