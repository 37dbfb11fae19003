"""Settings of the documentation site: ``make docs`` builds it into docs/_build."""

from importlib.metadata import version as installed

project = "dmfvi"
copyright = "the dmfvi developers"
release = installed("dmfvi")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
root_doc = "index"
exclude_patterns = ["_build", "_templates", "gallery"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_member_order = "groupwise"
autodoc_default_options = {"show-inheritance": True}
autodoc_typehints = "none"
numpydoc_show_class_members = True
numpydoc_show_inherited_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": "plot_",
    "abort_on_example_error": True,
    "show_memory": False,
    "capture_repr": (),
    "download_all_examples": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "dmfvi"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 3,
    "secondary_sidebar_items": ["page-toc"],
}
templates_path = ["_templates"]
html_sidebars = {"**": ["all-pages.html"]}
html_show_sourcelink = False
