"""Settings of Sphinx for the site; docs/site/build.py makes the source folder and runs it."""

import tomllib
from pathlib import Path

_PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]

project = "Bridle"
version = release = _PROJECT["version"]
author = "The Bridle authors"
project_copyright = author
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
smartquotes = False  # it makes an en dash of the two hyphens of an option
myst_links_external_new_tab = False
root_doc = "index"
html_theme = "furo"
html_title = f"Bridle {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
nitpicky = True
