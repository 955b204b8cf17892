"""Images as they are named on the command line: a set by name, or a folder."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from lexppl.choices.data_sets import image_names
from lexppl.cli.images_and_texts.divided_rows import (
    NONE,
    ROWS,
    DividedRows,
    RowsDescribed,
    check_rows,
    left_out,
)
from lexppl.data import DividedImages, divided_folder, image_set
from lexppl.models import Architecture, flat_images, images

PATCH, PATCHES_A_SIDE = 4, 14
"""Side of a patch in pixels, and how many of them a side has at most, where nobody says."""
SMALL: Mapping[str, Any] = MappingProxyType({"blocks": (16, 32), "levels": 2, "width": 8})
"""Convolutional networks that are fitted in minutes on a processor."""


def read_images(options: argparse.Namespace, device: torch.device) -> DividedRows:
    """Read the images that DATA names, in their three parts.

    Args:
        options: as typed.
        device: to put them on.

    Raises:
        ValueError: files that are not there or cannot be read, patches larger than the images.
    """
    rows = options.rows or ROWS
    parts = _read(options, rows).to(device)
    channels, height, width = parts.train.event_shape
    patch = _patch(options.patches, height, width)
    networks = getattr(options, "networks", None) or "flat"
    architecture = _architecture(networks, parts.train.event_shape, patch)
    grouping = architecture.grouping
    if grouping is None:
        raise ValueError("images have a grouping by patches; these networks have none")
    colours = {1: "grey", 3: "colour"}.get(channels, f"{channels} channels")
    described = RowsDescribed(
        name=parts.train.name,
        target_name=parts.train.target_name,
        class_names=parts.train.class_names,
        entry_names=tuple(grouping.names),
        rows="image",
        entries="pixels" if patch == 1 else f"patches of {patch} × {patch} pixels",
        shape=f"{height} × {width} pixels, {colours}",
        left_out=left_out(rows, "images", [len(parts.train), len(parts.test)]),
    )
    numbers = np.arange(len(parts.test))
    check_rows(getattr(options, "row", ()), len(numbers), "there are", "held-out images")
    return DividedRows(
        described,
        parts.train,
        parts.valid,
        parts.test,
        architecture,
        parts.test,
        numbers,
        (NONE, NONE, numbers),
    )


def _read(options: argparse.Namespace, rows: int) -> DividedImages:
    if options.data in image_names():
        return image_set(
            options.data, options.root, rows=rows, seed=options.seed, download=options.download
        )
    valid, test = getattr(options, "valid_share", None), options.test_share
    rest = 1.0 - test - (valid or 0.0)
    parts = divided_folder(
        Path(options.data).expanduser(),
        size=options.size,
        grayscale=options.grayscale or None,
        rows=math.ceil(rows / rest),
        valid_share=valid,
        test_share=test,
        seed=options.seed,
    )
    return parts.take(rows, seed=options.seed)


def _patch(given: int | None, height: int, width: int) -> int:
    """The side of a patch: as typed, or so that there are not too many."""
    shortest = min(height, width)
    if given is None:
        return min(shortest, max(PATCH, math.ceil(max(height, width) / PATCHES_A_SIDE)))
    if given > shortest:
        raise ValueError(
            f"--patches must be at most {shortest}, as the images are {height} × {width} pixels; "
            f"it is {given}"
        )
    return given


def _architecture(networks: str, shape: Sequence[int], patch: int) -> Architecture:
    if networks == "flat":
        return flat_images(shape, patches=patch)
    return images(shape, patches=patch, **SMALL)
