"""Turn the notebooks into pages: execute them with papermill, check their form, build the HTML book.

`build_book` makes the whole book at one profile, `regenerate` reruns one notebook with other parameters.
Both need the checkout (notebooks are not part of the installed package) and the extra ``book``.
"""

from fl_core.bookbuild.chapters import BookError, Parameter, find_notebook, parameters_of, parse_assignments
from fl_core.bookbuild.pipeline import build_book, regenerate

__all__ = [
    "BookError",
    "Parameter",
    "build_book",
    "find_notebook",
    "parameters_of",
    "parse_assignments",
    "regenerate",
]
