"""Ask a module as it is after training, and leave it as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from lexppl.threads import ONE_THREAD


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside; each part's own mode is put back."""
    with ONE_THREAD:
        modes = [(part, part.training) for part in model.modules()]
        model.eval()
        try:
            yield
        finally:
            for part, mode in modes:
                part.training = mode
