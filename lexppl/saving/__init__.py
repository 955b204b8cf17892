"""Fitted explainers as files: weights as safetensors, with the description as JSON in their
metadata; loading runs no code from them."""

from lexppl.saving.files import load, save
from lexppl.sealed_files import UnreadableFileError

__all__ = ["UnreadableFileError", "load", "save"]
