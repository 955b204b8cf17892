"""Where the fits of a command keep their states."""

import argparse

from lexppl.cli.options.checkpoint_options import folder_of
from lexppl.inference import Checkpoints


def checkpoints_of(options: argparse.Namespace) -> Checkpoints | None:
    """As typed; None for nowhere.

    Args:
        options: of `lexppl explain`.
    """
    folder = folder_of(options)
    return None if folder is None else Checkpoints(folder)
