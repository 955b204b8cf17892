"""What every run on mini-batches begins with: its settings checked, its world set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm.auto import tqdm

from lexppl.argument_checks import int_at_least
from lexppl.inference.contexts import program_settings, seeded
from lexppl.inference.nested_iwae import NestedIWAE
from lexppl.inference.posterior.stochastic.log_posterior import LogPosterior


def check_bound(batch_size: Any, objective: Any) -> None:
    """Refuse what says no mini-batch, or no bound, before any work.

    Args:
        batch_size: B, or None for the usual one.
        objective: the bound ℒ, or None to choose.

    Raises:
        ValueError, TypeError: as it says.

    Example:
        >>> check_bound(None, "elbo")
        Traceback (most recent call last):
        ...
        TypeError: objective must be a NestedIWAE or None; it is 'elbo'
    """
    if batch_size is not None:
        int_at_least("batch_size", batch_size)
    if not (objective is None or isinstance(objective, NestedIWAE)):
        raise TypeError(f"objective must be a NestedIWAE or None; it is {objective!r}")


@contextmanager
def stepping(target: LogPosterior, seed: int, steps: int, progress: bool) -> Iterator[Any]:
    """Draw from a seed, without argument checks, under a bar of so many steps.

    Args:
        target: what is sampled.
        seed: of all that is random inside; global random state is put back.
        steps: of the bar.
        progress: show it, on a terminal or in a notebook.
    """
    with (
        seeded(seed, target.device),
        program_settings(validate=False),
        tqdm(total=steps, disable=None if progress else True, unit="step") as bar,
    ):
        yield bar
