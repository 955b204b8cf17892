"""What tests need of an installation; where it is missing, they are skipped by its name."""

from importlib import import_module
from types import ModuleType

import pytest
import torch


def torchvision() -> ModuleType:
    """Torchvision of the build of torch that is installed: beside another one its import ends with
    a RuntimeError (an operator is missing) or an OSError (a symbol is)."""
    try:
        return import_module("torchvision")
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(
            f"needs a torchvision of the build of torch {torch.__version__}: {error}",
            allow_module_level=True,
        )


def cuda_build() -> None:
    """A build of torch for CUDA, with or without a GPU: one for the processor alone ends the
    process at the first operation on a tensor of a CUDA device, fake or not."""
    if not torch.backends.cuda.is_built():
        pytest.skip(f"needs a build of torch for CUDA; torch is {torch.__version__}")
