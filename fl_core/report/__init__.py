"""Floor 4: figures and tables.

What a notebook shows is wrapped for it; without IPython, as on a command line, text will do.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("IPython"):
    from IPython.display import HTML as HTML
    from IPython.display import Markdown as Markdown
    from IPython.display import display as display
else:
    HTML, Markdown, display = str, str, print
