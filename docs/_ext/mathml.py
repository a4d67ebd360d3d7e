"""Formulas as MathML, made when the site is built: nothing is loaded from elsewhere."""

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def show(translator, node):
    """Put a displayed or inline formula into the page."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    translator.body.append(convert(node.astext().strip(), display=display))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (show, None), (show, None))
    return {"parallel_read_safe": True}
