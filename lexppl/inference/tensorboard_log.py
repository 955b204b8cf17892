"""The course of a fit as TensorBoard shows it."""

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch.distributed

from lexppl.extras import extra_library
from lexppl.inference.training.watch import Epoch


class TensorBoardLog:
    """A callback that writes each epoch's losses where `tensorboard --logdir FOLDER` reads them.

    The scalars are `loss/train` and `loss/valid` in nats a row, and `steps/skipped`, the steps so
    far that were not finite; of several replicates one of each, `loss/train/0` and so on. Their
    step is the epoch, over all stages. What is not known, as a loss without validation rows, is
    left out. Each epoch is on disk when the callback returns.

    A fit that goes on from a checkpoint goes on in the same folder; another fit wants another one.

    Args:
        folder: made with the first epoch.

    Raises:
        ImportError: the extra `tensorboard` is not installed.

    Example:
        >>> import tempfile, torch
        >>> from lexppl.inference import fit
        >>> from lexppl.systems import lex
        >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> small = lex(3, classes=2, k=1, hidden=(4,), predictor_hidden=(4,))
        >>> with tempfile.TemporaryDirectory() as folder, TensorBoardLog(folder) as log:
        ...     result = fit(small, (x, (x[:, 0] > 0).long()), epochs=2, progress=False,
        ...         callbacks=[log])
        ...     len(list(Path(folder).iterdir()))
        1
    """

    def __init__(self, folder: str | Path) -> None:
        extra_library("tensorboard", "tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def __call__(self, epoch: Epoch) -> None:
        """Write an epoch; of processes that share a fit, the first writes."""
        group = torch.distributed
        if group.is_available() and group.is_initialized() and group.get_rank() > 0:
            return
        if self._writer is None:
            library = extra_library("torch.utils.tensorboard", "tensorboard")
            self._writer = library.SummaryWriter(str(self.folder))
        skipped = np.asarray(epoch.skipped, dtype=float)
        for name, values in (
            ("loss/train", epoch.train),
            ("loss/valid", epoch.valid),
            ("steps/skipped", skipped),
        ):
            for replicate, value in enumerate(values):
                tag = name if len(values) == 1 else f"{name}/{replicate}"
                if np.isfinite(value):
                    self._writer.add_scalar(tag, float(value), epoch.number)
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; a further epoch begins another."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
