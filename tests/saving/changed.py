"""Saved explainers with another description."""

import json

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lexppl.saving.description import FORMAT
from lexppl.saving.files import _with_checksum
from lexppl.sealed_files import BLANK, blank, checksum_of

WEIGHTS = "weights.safetensors"


def description_of(folder):
    """The description of a saved explainer."""
    with safe_open(folder / WEIGHTS, "pt") as file:
        described = json.loads(file.metadata()["lexppl"])
    del described["sha256"]
    assert described["format"] == FORMAT
    return described


def change_description(folder, described, weights=None):
    """Another description, and other weights if any, with a checksum that fits."""
    change_text(folder, blank(described), weights)
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(_with_checksum(content, BLANK, checksum_of(content)))


def change_text(folder, text, weights=None):
    """Another text in the place of the description, and other weights if any."""
    weights = load_file(folder / WEIGHTS) if weights is None else weights
    save_file(weights, folder / WEIGHTS, None if text is None else {"lexppl": text})
