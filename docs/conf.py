"""How the site is built: `sphinx-build -W --keep-going -b html docs site`.

What is written by the build, the reference and the copies of the notebooks, git does not keep.
`-t online` links the names of torch, Pyro, ArviZ and others to their own sites; `-b linkcheck` asks
after every address. Both need a network, and the tests use neither.
"""

import sys
from importlib.metadata import version as version_of
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(DOCS), str(ROOT / "benchmarks")]

from extension import benchmarks, commands, docstrings, gallery, pages, references, tested  # noqa: E402

project = "lexppl"
author = "the authors of lexppl"
copyright = f"2026, {author}"
release = version_of("lexppl")
version = release

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
]
html_math_renderer = "mathjax"
if find_spec("latex2mathml"):
    html_math_renderer = "mathml"
    extensions.append("extension.mathml")
else:  # Formulas then need a network to be read.
    extensions.append("sphinx.ext.mathjax")
online = "online" in globals().get("tags", ())
if online:
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "torch": ("https://docs.pytorch.org/docs/stable", None),
        "pyro": ("https://docs.pyro.ai/en/stable", None),
        "arviz": ("https://python.arviz.org/en/stable", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
    }

root_doc = "index"
exclude_patterns = ["_build", "site", "Thumbs.db", ".DS_Store"]
nitpicky = True
# A single pair of backticks is code in the docstrings.
default_role = "code"

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
# Run by tests/test_notebooks.py; the site shows what was committed.
nb_execution_mode = "off"
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autosummary_generate = False
python_use_unqualified_type_names = True
python_display_short_literal_types = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_custom_sections = [("Shapes", "params_style"), ("Terms", "params_style")]

html_theme = "furo"
html_title = f"lexppl {release}"
html_static_path = ["static"]
html_css_files = ["lexppl.css"]
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"

linkcheck_timeout = 20
linkcheck_retries = 2


def setup(app: Any) -> None:
    pages.write(DOCS, ROOT)
    for part in (benchmarks, commands, docstrings, gallery, references, tested):
        part.setup(app)
