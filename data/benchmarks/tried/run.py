"""Measure what was tried for tiny tasks and for the kernels: ``python data/benchmarks/tried/run.py``.

``data/benchmarks/tried.json`` has the times, what is the same to the last bit, and the machine. Ways that the machine
lacks (a compiler, say) are left out with a line that says so; another interpreter is named by ``--free-threaded``.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kernels
import small

from fl_core.benchmarks.harness import Outcome, Part, load_average, new_report

HERE = Path(__file__).parent


def main() -> None:
    """Measure, and write the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--times", type=int, default=3, help="turns of the tiny tasks; the kernels have twice as many"
    )
    parser.add_argument("--updates", type=int, default=600, help="of the tiny tasks")
    parser.add_argument("--free-threaded", metavar="PATH", help="a Python without lock that has PyTorch")
    parser.add_argument("--parts", nargs="*", default=["tried-small", "tried-kernels"])
    parser.add_argument("--out", type=Path, default=HERE.parent / "tried.json")
    given = parser.parse_args()
    parts: dict[str, tuple[str, str, Callable[[], tuple[Outcome, dict[str, Any]]]]] = {
        "tried-small": (small.SENTENCE, "", lambda: small.measure(given.times, given.updates, given.free_threaded)),
        "tried-kernels": (kernels.SENTENCE, "batch", lambda: kernels.measure(2 * given.times)),
    }
    report = new_report() | {"tried": {}}
    for name in given.parts:
        sentence, sizes, measure = parts[name]
        load, start = load_average(), time.perf_counter()
        outcome, report["tried"][name] = measure()
        where = {"load": load, "seconds": round(time.perf_counter() - start, 1)}
        part = Part(name, sentence, lambda effort: Outcome([]), sizes=sizes)
        report["parts"][name] = part.report(outcome, **where)
        print(f"{name}: {where['seconds']} s", flush=True)
        given.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
