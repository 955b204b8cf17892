"""Saved explainers with another description, and as they were written in two files."""

import json

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lexppl.saving.description import FORMAT
from lexppl.saving.files import _with_checksum
from lexppl.sealed_files import BLANK, blank, checksum, checksum_of, sealed

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
    weights = load_file(folder / WEIGHTS) if weights is None else weights
    save_file(weights, folder / WEIGHTS, {"lexppl": blank(described)})
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(_with_checksum(content, BLANK, checksum_of(content)))


def divide(folder):
    """The two files of an explainer, as they were written before."""
    described = description_of(folder)
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS)
    described["weights_sha256"] = checksum(folder / WEIGHTS)
    (folder / "explainer.json").write_text(sealed(described), encoding="utf-8")
