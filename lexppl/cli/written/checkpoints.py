"""Where the fits of a command keep their states."""

import argparse

from lexppl.inference import Checkpoints


def checkpoints_of(options: argparse.Namespace) -> Checkpoints | None:
    """As typed; None for nowhere.

    Args:
        options: of `lexppl explain`.
    """
    folder = options.resume or options.checkpoint
    return None if folder is None else Checkpoints(folder)
