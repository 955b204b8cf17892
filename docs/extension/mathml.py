"""Formulas as MathML, which browsers show without a script and without a network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util.math import get_node_equation_number


def setup(app: Any) -> None:
    app.add_html_math_renderer(
        "mathml", inline_renderers=(inline, None), block_renderers=(block, None)
    )


def inline(translator: Any, node: Any) -> None:
    """A formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def block(translator: Any, node: Any) -> None:
    """A formula of its own lines, with its number where it has a label."""
    formula = node.astext().strip().replace("{aligned}", "{split}")
    if r"\\" in formula and r"\begin" not in formula:
        formula = rf"\begin{{split}}{formula}\end{{split}}"
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        translator.body.append("</span>")
    translator.body.append(convert(formula, display="block") + "</div>")
    raise nodes.SkipNode
