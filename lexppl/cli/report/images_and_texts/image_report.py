"""Images and texts as parts of a page, and as pages of their own."""

from collections.abc import Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from lexppl.arviz_compatibility import Posterior
from lexppl.cli.report.images_and_texts.image_parts import ImageParts, image_parts
from lexppl.cli.report.images_and_texts.image_template import IMAGE_PART, PAGE, TEXT_PART
from lexppl.cli.report.images_and_texts.text_parts import TextParts, text_parts


def image_html(parts: ImageParts) -> Markup:
    """The part of a page that shows images; it needs `MAP_STYLES` beside the page's own."""
    return rendered(IMAGE_PART, parts=parts)


def image_report(
    posterior: Posterior,
    observed: Sequence[Any] | None = None,
    *,
    title: str = "Where the explainer looks",
    subtitle: str = "",
    per_class: int = 3,
    asked: Sequence[Any] = (),
) -> str:
    """A page of its own on the images of a posterior, which needs no other file.

    Args:
        posterior: what :func:`lexppl.explain` returned of images.
        observed: the rows' labels or responses; those of `observed_data` if None, where they are.
        title: of the page.
        subtitle: what stands below it.
        per_class: rows that are predicted right, and that are predicted wrong, of each class.
        asked: names of rows to be shown one by one; three of those above if none.

    Raises:
        TypeError, ValueError: as :func:`image_parts`.
    """
    parts = image_parts(posterior, observed, per_class=per_class, asked=asked)
    return page_of(image_html(parts), title, subtitle)


def text_html(parts: TextParts) -> Markup:
    """The part of a page that shows texts; it needs `MAP_STYLES` beside the page's own."""
    return rendered(TEXT_PART, parts=parts)


def text_report(
    posterior: Posterior,
    words: Sequence[Sequence[str]],
    observed: Sequence[Any] | None = None,
    *,
    title: str = "Which words the explainer keeps",
    subtitle: str = "",
    per_class: int = 2,
    asked: Sequence[Any] = (),
) -> str:
    """A page of its own on the texts of a posterior, which needs no other file.

    Args:
        posterior: what :func:`lexppl.explain` returned of texts, an entry a word.
        words: of each row its words, in the order of the entries.
        observed: the rows' labels or responses; those of `observed_data` if None, where they are.
        title: of the page.
        subtitle: what stands below it.
        per_class: rows that are predicted right, and that are predicted wrong, of each class.
        asked: names of rows that are shown before all others.

    Raises:
        TypeError, ValueError: as :func:`lexppl.cli.report.images_and_texts.text_parts.text_parts`.
    """
    parts = text_parts(posterior, words, observed, per_class=per_class, asked=asked)
    return page_of(text_html(parts), title, subtitle)


def page_of(part: Markup, title: str, subtitle: str = "") -> str:
    """A page with one part."""
    return str(rendered(PAGE, part=part, title=title, subtitle=subtitle))


def rendered(template: str, **context: Any) -> Markup:
    """A template with what it speaks of, escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return Markup(environment.from_string(template).render(**context))
