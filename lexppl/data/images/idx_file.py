"""Files of the kind in which MNIST comes: bytes in an array, packed or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

BYTES = 8
"""The code of bytes in the third byte of a file."""


def read_idx(file: Path, dims: int) -> Tensor:
    """Read an array of bytes from an idx file.

    The file begins with two zeros, the code of the type (8: bytes) and the number of dimensions;
    then each dimension in four bytes, the highest first; then the values, the last dimension
    fastest.

    Args:
        file: its path; one that ends in ``.gz`` is unpacked in memory, so that its folder may be
            one that cannot be written to.
        dims: how many dimensions it must have.

    Returns:
        the array, ``torch.uint8``.

    Raises:
        ValueError: a file that is cut off, not an idx file of bytes, or of other dimensions.

    Source: LeCun, Cortes & Burges, THE MNIST DATABASE of handwritten digits.
    """
    try:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{str(file)!r} cannot be unpacked: {error}; get it anew") from error
    begin = 4 + 4 * dims
    if len(content) < begin or content[:4] != bytes((0, 0, BYTES, dims)):
        raise ValueError(f"{str(file)!r} is no idx file of bytes with {dims} dimensions")
    shape = [int(size) for size in np.frombuffer(content, ">u4", count=dims, offset=4)]
    size = int(np.prod(shape))
    if len(content) != begin + size:
        raise ValueError(
            f"{str(file)!r} must hold {' × '.join(map(str, shape))} = {size:,} values; it holds "
            f"{len(content) - begin:,}: get it anew"
        )
    values = np.frombuffer(content, np.uint8, offset=begin).reshape(shape)
    return torch.from_numpy(values.copy())
