"""Images and texts as parts of a page, and as pages of their own."""

from typing import Any

import jinja2
from markupsafe import Markup

from lexppl.cli.report.images_and_texts.image_parts import ImageParts
from lexppl.cli.report.images_and_texts.image_template import IMAGE_PART, TEXT_PART
from lexppl.cli.report.images_and_texts.text_parts import TextParts


def image_html(parts: ImageParts) -> Markup:
    """The part of a page that shows images; it needs `MAP_STYLES` beside the page's own."""
    return rendered(IMAGE_PART, parts=parts)


def text_html(parts: TextParts) -> Markup:
    """The part of a page that shows texts; it needs `MAP_STYLES` beside the page's own."""
    return rendered(TEXT_PART, parts=parts)


def rendered(template: str, **context: Any) -> Markup:
    """A template with what it speaks of, escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return Markup(environment.from_string(template).render(**context))
