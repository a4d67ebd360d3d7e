"""The documentation site: Sphinx, MyST-NB and Furo. ``make docs`` builds it into docs/_build/html.

No page loads anything from elsewhere: no fonts, no badges. Formulas in blocks become MathML here.
The notebooks of learn/ are shown with their stored outputs, which the tests compare with new ones.
"""

import sys
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import flowsim

project = "flowsim"
version = release = flowsim.__version__
html_title = f"flowsim {version}"
html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"font-stack--monospace": "ui-monospace, Menlo, Consolas, monospace"}
}

extensions = [
    "myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "plain_docstrings", "command_help",
    "mathml", "record_variables",
]  # fmt: skip
exclude_patterns = ["_build", "_ext", "learn/*.py", "gallery.py"]
nb_execution_mode = "off"
nb_code_prompt_show = "the checks"
nb_code_prompt_hide = "the checks"
myst_heading_anchors = 3
myst_fence_as_directive = ["math"]
html_math_renderer = "mathml"
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what each argument is
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
napoleon_use_rtype = False
nitpicky = True
#: Types are words of a sentence here ("array of shape (n,)"), and other projects' are not linked.
nitpick_ignore_regex = [("py:class", ".*")]

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
REPOSITORY = _PROJECT.get("urls", {}).get("Repository", "")


def open_in_colab(app, page, template, context, doctree):
    """Link each notebook of Learn to itself in Colab, once pyproject.toml names a repository."""
    repository = REPOSITORY.partition("github.com/")[2]
    if repository and page.startswith("learn/") and page != "learn/index":
        link = f"https://colab.research.google.com/github/{repository}/blob/main/docs/{page}.ipynb"
        context["body"] = f'<p><a href="{link}">Open in Colab</a></p>' + context["body"]


def setup(app):
    app.connect("html-page-context", open_in_colab)
