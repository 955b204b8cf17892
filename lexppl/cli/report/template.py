"""The reports' pages, as Jinja2 templates: one file each, nothing loaded from elsewhere."""

from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

HEAD = ("start.html", "styles.css")
FOUND = ("ranking.html", "single_rows.html", "heat_map.html", "choice.html")
TABLE = (*HEAD, "opening.html", "dial.html", *FOUND, "closing.html")


def rendered(*parts: str, **context: Any) -> Markup:
    """Files of `templates`, one after another, with what they speak of, escaped."""
    folder = files("lexppl.cli.report") / "templates"
    text = "".join((folder / part).read_text(encoding="utf-8") for part in parts)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lexppl.cli.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return Markup(environment.from_string(text).render(**context))
