"""What the program says beside its results, on standard error."""

import sys
from collections.abc import Mapping
from types import MappingProxyType

from lexppl.inference.collapse import ALL_OFF, ALL_ON, ONE_MASK

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        ALL_OFF: "no row keeps any feature: give a lower --penalty, or --k",
        ALL_ON: "every row keeps every feature: give a higher --penalty, or --k",
        ONE_MASK: (
            "every row keeps the same features: fine if the same ones matter everywhere; if you "
            "expect them to differ, give a larger --masks, more --epochs, or another --seed"
        ),
    }
)


def tell(message: str, quiet: bool = False) -> None:
    """Say in one line how the work goes."""
    if not quiet:
        print(f"lexppl: {message}", file=sys.stderr, flush=True)


def warn(message: str) -> None:
    """Warn in one line."""
    print(f"lexppl: warning: {message}", file=sys.stderr, flush=True)


def collapse_messages(found: list[str | None]) -> list[str]:
    """One line for each kind of collapse among the replicates, with what to try.

    Example:
        >>> collapse_messages([None, None])
        []
        >>> collapse_messages(["all off", None])[0][:45]
        'collapse in 1 of 2 replicates (all off): no r'
    """
    lines = []
    for kind, advice in ADVICE.items():
        count = sum(1 for one in found if one == kind)
        if count:
            which = "" if len(found) == 1 else f" in {count} of {len(found)} replicates"
            lines.append(f"collapse{which} ({kind}): {advice}")
    return lines
