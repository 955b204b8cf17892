"""Fitted explainers as files: weights as safetensors, the description as JSON; loading runs no
code from them."""

from lexppl.saving.description import describe, known_parts, rebuild
from lexppl.saving.files import load, save
from lexppl.sealed_files import UnreadableFileError

__all__ = ["UnreadableFileError", "describe", "known_parts", "load", "rebuild", "save"]
