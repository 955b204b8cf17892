"""The data sets that need no file, by name."""

from collections.abc import Mapping
from types import MappingProxyType

SYNTHETIC: Mapping[str, str] = MappingProxyType(
    {"Syn1": "A", "Syn2": "B", "Syn3": "C", "Syn4": "AB", "Syn5": "AC", "Syn6": "BC"}
)
"""Synthetic sets, and the functions that make their labels: one, or two and a switch."""

ALIASES: Mapping[str, str] = MappingProxyType({"S1": "Syn4", "S2": "Syn5", "S3": "Syn6"})

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "breast_cancer": "diagnosis",
        "wine": "cultivar",
        "digits": "digit",
        "diabetes": "progression",
    }
)
"""Real sets, and what is predicted in each."""


def synthetic_names() -> tuple[str, ...]:
    """Return the names of the synthetic sets, aliases last.

    >>> synthetic_names()
    ('Syn1', 'Syn2', 'Syn3', 'Syn4', 'Syn5', 'Syn6', 'S1', 'S2', 'S3')
    """
    return (*SYNTHETIC, *ALIASES)


def shipped_names() -> tuple[str, ...]:
    """Return the names that :func:`lexppl.data.load` knows.

    >>> shipped_names()[:5]
    ('breast_cancer', 'wine', 'digits', 'diabetes', 'Syn1')
    """
    return (*TARGETS, *synthetic_names())
