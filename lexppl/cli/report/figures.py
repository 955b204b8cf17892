"""Pictures as text that stands inside a page."""

import base64
import io
from typing import Any

import matplotlib
from matplotlib.figure import Figure

LARGEST_SVG = 150_000
"""Bytes above which a picture is a raster one: many small shapes make a slow page."""
RESOLUTION = 160


def data_uri(figure: Figure) -> str:
    """A picture as a data URI: SVG where it is small, else PNG. The same figure, the same bytes.

    Example:
        >>> figure = Figure(figsize=(1, 1))
        >>> data_uri(figure)[:26]
        'data:image/svg+xml;base64,'
    """
    with matplotlib.rc_context({"svg.hashsalt": "lexppl", "svg.fonttype": "path"}):
        kind, content = "svg+xml", _rendered(figure, "svg", metadata={"Date": None})
        if len(content) > LARGEST_SVG:
            kind, content = "png", _rendered(figure, "png", dpi=RESOLUTION)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"


def _rendered(figure: Figure, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, transparent=True, **options)
    return buffer.getvalue()
