"""The command line: what it prints, what it writes, and how it says no."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from commands import TINY, call, invoke, refused
from typer.main import get_command

from fl_core.bookbuild.chapters import file_name
from fl_core.cli import app, catalogue
from fl_core.cli.app import VISIBLE
from fl_core.datasets import load_dataset
from fl_core.errors import SpecError
from fl_core.experiments.run import commit
from fl_core.experiments.spec import RunSpec
from fl_core.experiments.store import Store
from fl_core.runtime.history import History

pytestmark = pytest.mark.usefixtures("few_images", "results")
COMMANDS = ["run", "list", "plan", "claims", "regenerate", "book", "doctor", "bench"]


def process(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fl_core.cli", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **settings})


LISTS = {
    "list": ("algorithms", "fedasync"), "list algorithms": ("algorithms", "alpha"), "list fields": ("fields", "seed"),
    "data": ("fashion-mnist", "licence"), "plan fedasync-fig2": ("rows", "core_seconds"), "doctor": ("state", "ok"),
    "doctor --size": ("core", "runtime"),
}  # fmt: skip


@pytest.mark.usefixtures("small_study")
@pytest.mark.parametrize("words", LISTS)
def test_what_lists_lists_as_json_too(words: str):
    text = call(*words.split(), "--json")
    assert json.loads(text)
    assert [word for word in LISTS[words] if f'"{word}"' not in text] == []


def test_every_command_has_json(monkeypatch: pytest.MonkeyPatch):
    todo, seen = [get_command(app)], []
    while todo:
        seen.append(todo.pop())
        todo += getattr(seen[-1], "commands", {}).values()
    alone = [each for each in seen if getattr(each, "invoke_without_command", True)]
    assert {"run", "list", "data", "get", "merge"} < {each.name for each in alone}
    assert [each.name for each in alone if not any("--json" in option.opts for option in each.params)] == []
    monkeypatch.setattr("fl_core.bookbuild.build_book", lambda profile, jobs, echo: echo("[1/1]") or Path("there"))
    assert json.loads(call("book", "--json")) == {"profile": "smoke", "written": ["there/index.html"]}
    assert json.loads(call("results", "pack", "--json")) == {"written": []}


def test_shells_complete_commands():
    words = {"_FL_CORE_COMPLETE": "complete_bash", "COMP_WORDS": "fl-core re", "COMP_CWORD": "1"}
    assert process(**words).stdout.split() == ["replay", "regenerate", "results"]


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys\nfrom fl_core.cli import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'pandas', 'pydantic', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", [[], *([name] for name in COMMANDS)])
def test_every_help_text_fits_a_page_and_is_complete(name):
    text = call(*name, "--help")
    assert "..." not in text.replace("]...", "")
    assert max(map(len, text.splitlines())) <= 80


def test_every_option_has_a_help_text():
    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            assert parameter.help, f"{name} {parameter.name}"


def test_the_examples_are_accepted():
    """Parse every example below a help text, without running it."""
    groups = [get_command(app), get_command(app).commands["data"]]
    texts = [command.epilog or "" for group in groups for command in (group, *group.commands.values())]
    lines = [line for text in texts for line in text.splitlines()]
    shown = [line.strip() for line in lines if line.startswith("  fl-core")]
    assert len(shown) > 15
    for line in shown:
        _, name, *rest = shlex.split(line.split("  ")[0].split(">")[0])
        get_command(app).commands[name].make_context(name, list(rest))
        if name == "run" and rest[0] != "spec.json":
            call("run", *(word for word in rest if word != "--print-spec"), "--print-spec")


def test_version():
    assert call("--version").startswith("fl-core 0.")


def test_a_run_prints_its_evaluations_and_keeps_its_result(results: Path):
    text = call("run", *TINY, "--seed", "3", "--out", "result.json")
    header, first, last = text.splitlines()[:3]
    assert header.split() == ["seconds", "version", "gradients", "communications", "accuracy", "loss"]
    assert first.split()[1] == "0"
    assert last.split()[1:3] == ["5", "5"]
    assert "fashion-mnist (real data), seed 3" in text
    written = json.loads(Path("result.json").read_text())
    spec = RunSpec(**written["spec"])
    [stored] = Store(results, results)
    assert stored.spec == spec
    assert stored.history.to_dict() == History.from_dict(written["history"]).to_dict()
    assert written["provenance"]["data"] == "real"


def test_what_is_written_can_be_run_again(results: Path):
    Path("spec.json").write_text(call("run", *TINY, "--print-spec"))
    assert not results.exists()
    one = call("run", "spec.json", "--no-store", "--trace", "--executor", "sequential", "--out", "one.json")
    two = call("run", "spec.json", "--no-store", "--threads", "2", "--out", "two.json")
    assert one.splitlines()[:3] == two.splitlines()[:3]
    assert len(json.loads(Path("one.json").read_text())["history"]["spans"]["task"]) >= 5
    assert not results.exists()


def test_json_is_all_that_a_run_prints():
    files = ["--out", "a.json", "--save-model", "a.safetensors"]
    done = invoke("run", *TINY, "--json", "--resume", *files)
    assert json.loads(done.stdout) == json.loads(Path("a.json").read_text())
    assert "it begins anew" in done.stderr


def test_settings_reach_every_field():
    fields = ["alpha=0.8", "weight=hinge(a=10, b=4)", "partition=dirichlet(alpha=0.3)", "world.compute.slowest=9"]
    fields += ["budget.updates=none", "budget.seconds=1e3", "schedule=step", "seed=7"]
    settings = [word for field in fields for word in ("--set", field)]
    spec = RunSpec.from_json(call("run", "--algorithm", "fedasync", *settings, "--seed", "8", "--print-spec"))
    rule = spec.algorithm
    assert (rule.alpha, str(rule.weight), rule.schedule) == (0.8, "hinge(a=10, b=4)", "step")
    assert (spec.partition.alpha, spec.world.compute.slowest, spec.seed) == (0.3, 9, 8)
    assert (spec.budget.updates, spec.budget.seconds) == (None, 1000)


def test_settings_are_judged_together():
    """200 devices in flight do not fit the default world of 100, but they fit the one that is asked for."""
    wish = ["run", "--algorithm", "fedasync", "--set", "concurrency=200", "--print-spec"]
    assert "wants 200 devices in flight, but the world has devices = 100" in refused(*wish)
    assert RunSpec.from_json(call(*wish, "--set", "world.devices=300")).world.devices == 300


def test_a_file_may_leave_the_algorithm_to_the_command_line():
    Path("part.json").write_text('{"seed": 5, "training": {"lr": 0.1}}')
    assert "part.json: a run needs an algorithm (valid: " in refused("run", "part.json")
    spec = RunSpec.from_json(call("run", "part.json", "-a", "fedavg", "-s", "clients_per_round=3", "--print-spec"))
    assert (spec.seed, spec.training.lr, spec.algorithm.clients_per_round) == (5, 0.1, 3)


def test_an_existing_file_is_replaced_only_by_force():
    Path("out.json").write_text("precious")
    assert refused("run", *TINY, "--out", "out.json") == "out.json exists; give another name or add --force"
    assert Path("out.json").read_text() == "precious"
    call("run", *TINY, "--out", "out.json", "--force")
    assert "history" in json.loads(Path("out.json").read_text())


def test_nothing_is_half_written_when_a_run_fails(monkeypatch: pytest.MonkeyPatch, results: Path):
    def fail(*_: object, **__: object) -> None:
        raise SpecError("no luck")

    monkeypatch.setattr("fl_core.experiments.run.run", fail)
    assert refused("run", *TINY, "--out", "out.json") == "no luck"
    assert list(Path().iterdir()) == []


def test_debug_shows_where_an_error_comes_from():
    done = invoke("--debug", "run", "--algorithm", "fedasinc")
    assert isinstance(done.exception, SpecError)


def test_the_real_process_exits_with_2_without_a_traceback():
    done = process("list", "algorithm")  # which is refused before PyTorch is imported
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("fl-core: error: unknown list 'algorithm'; did you mean 'algorithms'[^\n]*\n", done.stderr)


def test_lists_name_everything_with_meanings():
    overview = call("list")
    for kind in catalogue.KINDS:
        assert f"\n{kind}" in f"\n{overview}"
        assert call("list", kind).strip()
    for kind in set(catalogue.KINDS) - {"notebooks"}:
        for item in catalogue.items_of(kind):
            assert item.meaning, f"{kind} {item.name}"
            assert all(meaning for _, _, meaning in item.parameters), f"{kind} {item.name}"
    algorithms = call("list", "algorithms")
    assert "alpha        0.6" in algorithms
    assert "Mixing weight of a fresh model, in (0, 1]." in algorithms
    assert "budget.updates    300" in call("list", "fields")


def test_a_claim_without_any_run_is_undecided():
    assert "FEDASYNC-C03 undecided (run): " in call("claims", "fedasync-c03")
    assert "FEDLUCK-C08-released " in call("claims", "FEDLUCK-C08-released")


def test_a_plan_counts_shared_runs_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("fl_core.experiments.spec.load_dataset", load_dataset)  # the whole sets: it times some steps
    lines = call("plan", "fedasync-*", "--profile", "smoke").splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("fedasync-")}
    assert all(runs == missing and stored == "0" for runs, stored, _, missing in rows.values())
    together = int(next(line.split()[1] for line in lines if line.startswith("runs ")))
    assert together < sum(int(runs) for runs, *_ in rows.values())
    assert any("estimate" in line for line in lines)


@pytest.mark.usefixtures("small_study")
def test_one_command_makes_one_figure(results: Path):
    text = call("regenerate", "fedasync-fig5", "-o", "figures", "--jobs", "1")
    names = {f"fedasync-fig5.{suffix}" for suffix in ("png", "svg", "csv", "txt")}
    assert {path.name for path in Path("figures").iterdir()} == names
    assert Path("figures/fedasync-fig5.txt").read_text().strip() in text
    assert "profile smoke, seed 0" in text
    assert "profile smoke: no larger one is stored" in text
    assert f"from the store: 0 runs; computed now: 5 runs (5 by {commit()})" in text
    before = {path.name: path.read_bytes() for path in Path("figures").iterdir()}
    stored = {path: path.stat().st_mtime_ns for path in results.iterdir()}
    again = call("regenerate", "fedasync-fig5", "-o", "figures", "--jobs", "1")
    assert f"from the store: 5 runs (5 by {commit()}); computed now: 0 runs" in again
    assert "5 of 5 runs verified by this code" in again
    assert {path.name: path.read_bytes() for path in Path("figures").iterdir()} == before
    assert {path: path.stat().st_mtime_ns for path in results.iterdir()} == stored  # nothing was run again
    call("regenerate", "fedasync-fig5", "-o", "figures", "--jobs", "1", "--table", "latex")
    rows = Path("figures/fedasync-fig5.csv").read_text().strip().splitlines()[1:]
    assert Path("figures/fedasync-fig5.tex").read_text().count("\\\\\n") == len(rows) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        patch.setitem(sys.modules, "fastparquet", None)
        patch.setattr("fl_core.experiments.grid.execute", lambda *_, **__: pytest.fail("it began"))
        said = refused("regenerate", "fedasync-fig5", "-o", "figures", "-P", "smoke", "--table", "parquet")
    assert said == "a table as parquet takes another package: pip install pyarrow"


@pytest.mark.usefixtures("small_study")
def test_the_published_profile_is_shown_where_its_records_are_and_other_parameters_go_to_other_files(results: Path):
    from fl_papers.fedasync import experiment

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(experiment.PROFILES, "laptop", replace(experiment.PROFILES["smoke"], seeds=(0, 1)))
        assert json.loads(call("work", "fedasync-fig5", "--profile", "laptop", "--json"))["done"] == 10
        text = call("regenerate", "fedasync-fig5", "-o", "figures")
        assert "profile laptop: stored runs" in text
        assert "from the store: 10 runs" in text
        said = json.loads(call("regenerate", "fedasync-fig5", "-o", "figures", "-p", "seeds=[0]", "--json"))
        assert (said["profile"], len(said["written"])) == ("laptop", 4)
        call("regenerate", "fedasync-fig5", "-o", "figures", "-p", "seeds=[1]")
    names = {path.name for path in Path("figures").glob("*.csv")}
    assert len(names) == 3
    assert {"fedasync-fig5.csv", f"{file_name('fedasync-fig5', {'seeds': [0]})}.csv"} < names


def test_a_damaged_result_is_a_warning_in_one_line(results: Path):
    call("run", *TINY)
    [path] = results.iterdir()
    path.write_bytes(b"damaged")
    done = invoke("doctor")
    assert f"result file {path} is damaged" in done.stdout


def test_notebooks_go_to_papermill(monkeypatch: pytest.MonkeyPatch):
    seen: list[object] = []
    monkeypatch.setattr("fl_core.bookbuild.regenerate", lambda *given, echo: seen.extend(given) or Path("x.ipynb"))
    call(*shlex.split("regenerate start_here --profile laptop -p ALPHA=0.5 -p WEIGHT=linear'(a=1)' -o x.ipynb"))
    assert seen == ["start_here", {"PROFILE": "laptop", "ALPHA": 0.5, "WEIGHT": "linear(a=1)"}, Path("x.ipynb")]


@pytest.mark.parametrize(
    ("device", "shown", "seen"),
    [("cpu", None, ""), ("cuda", None, None), ("cuda:1", None, "1"), ("cuda:1", "4,7", "7"), ("cuda:2", "4,7", "")],
)
def test_a_run_sees_the_device_that_was_chosen_and_no_other(device, shown, seen, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VISIBLE, shown or "")
    if shown is None:
        monkeypatch.delenv(VISIBLE)
    monkeypatch.setattr("torch.cuda.is_available", lambda: os.environ.get(VISIBLE) != "")
    done = invoke("run", *TINY, "--device", device, "--executor", "debug")
    assert os.environ.get(VISIBLE) == seen
    if device == "cpu":
        assert done.exit_code == 0, done.output
    else:
        said = f"there is no {device} here" if seen == "" else f"'debug' computes on the processor; --device {device}"
        assert done.exit_code == 2
        assert said in done.stderr


def test_a_run_that_ends_early_is_kept_and_has_an_exit_code_of_its_own(results: Path):
    text = call("run", *TINY, "--set", 'world.faults=[{"kind": "lost", "probability": 1.0}]', code=3)
    assert "ended before its budget: no upload arrived any more" in text
    assert [result.history.ended for result in Store(results, results)] == ["lost"]
