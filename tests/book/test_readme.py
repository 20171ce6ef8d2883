"""The example in README.md runs as it is printed, only shorter."""

from __future__ import annotations

import re
import subprocess
import sys

from fl_core.bookbuild.chapters import ROOT


def test_the_example_algorithm_runs():
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    shorter = example.replace('"updates": 50', '"updates": 2')
    assert shorter != example
    done = subprocess.run([sys.executable, "-c", shorter], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert 0 <= float(done.stdout) <= 1
