"""``python -m fl_core.cli`` is ``fl-core``."""

from fl_core.cli import main

if __name__ == "__main__":
    main()
