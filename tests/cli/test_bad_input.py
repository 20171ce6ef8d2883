"""Bad input over the command line, the API and files: one line that names it, exit code 2, nothing written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import TINY, refused

from fl_core.algorithms import ALGORITHMS
from fl_core.bookbuild import pipeline
from fl_core.bookbuild.chapters import ROOT
from fl_core.bookbuild.pages import figure
from fl_core.cli import catalogue
from fl_core.errors import SpecError
from fl_core.experiments.spec import RunSpec

pytestmark = pytest.mark.usefixtures("results")
RUN = ["run", "-a", "fedasync", "-s"]
NAMES = ", ".join(sorted(ALGORITHMS))
COMMANDS: list[tuple[list[str], str]] = [
    (["run", "-a", "fedasmu", "-s", "sqrt_offset_server=4"], "sqrt_offset_server = 4 is not valid"),
    (["run", "-a", "wkafl", "-s", "staleness_offset=2"], "staleness_offset = 2 is not valid: it should be one of 0"),
    (["run", "-a", "async_sdfeel", "-s", "staleness_origin=7"], "staleness_origin = 7 is not valid"),
    *(([*RUN, f"alpha={odd}"], "alpha = ")
        for odd in ("true", "false", "0", "-1", "1.01", "[0.5]", "x", "none", "1e999")),
    *(([*RUN, f"concurrency={odd}"], "concurrency = ")
        for odd in ("true", "0", "-3", "1.5", "x", "[]", "none", "{}")),
    *(([*RUN, f"training.lr={odd}"], "lr = ") for odd in ("true", "0", "-0.1", "NaN", "Infinity", "fast")),
    *(([*RUN, f"world.devices={odd}"], "devices = ") for odd in ("true", "0", "-1", "2.5", "many", "none")),
    *(([*RUN, f"budget.updates={odd}"], "updates = ") for odd in ("true", "0", "-5", "1.5", "all")),
    *(([*RUN, f"seed={odd}"], "seed = ") for odd in ("true", "-1", "0.5", "x", "none", "9223372036854775808")),
    *(([*RUN, f"label_noise={odd}"], "label_noise = ") for odd in ("true", "2", "-0.1", "NaN", "x")),
    *(([*RUN, f"dataset={odd}"], "data") for odd in ("mnist", "3", "none", "[]", "true")),
    *(([*RUN, f"model={odd}"], "model") for odd in ("lenet", "3", "none", "lenet5(", "lenet5(depth=3)", "true")),
    *(([*RUN, f"partition={odd}"], "partition")
        for odd in ("iidd", "3", "none", "dirichlet(alpha=-1)", "iid(", "[]", "true")),
    *(([*RUN, f"weight={odd}"], "weight") for odd in ("hing", "3", "none", "hinge(a=x)", "hinge(b)", "[]", "true")),
    *(([*RUN, f"world={odd}"], "world") for odd in ("fedasmo", "3", "none", "[]", "fedasmu(devices=0)", "true")),
    *(([*RUN, odd], "")
        for odd in ("=1", "", "world.device=3", "a.b.c=1", "seed.x=1", "__class__=1")),
    *(([*RUN, f"training.{odd}"], odd.partition("=")[0])
        for odd in ("batch_size=0", "batch_size=true", "epochs=0", "epochs=1e11", "epochs=true", "steps=0",
                    "steps=1e8", "momentum=1", "momentum=-0.1", "weight_decay=-1", "weight_decay=NaN", "lr_decay=0",
                    "lr_decay=2", "lr_decay_versions=0", "order=random", "momentum_reset=maybe", "rate=1")),
    *(([*RUN, f"evaluation.{odd}"], odd.partition("=")[0])
        for odd in ("every_updates=0", "every_updates=true", "every_seconds=0", "every_seconds=NaN",
                    "test_samples=-1", "test_samples=1e11", "train_samples=-1", "train_samples=100000000",
                    "at_seconds=x", "at_seconds=[-1]", "at_seconds=[true]", "every=3")),
    *(([*RUN, f"budget.{odd}"], odd.partition("=")[0])
        for odd in ("gradients=0", "gradients=true", "seconds=0", "seconds=-1", "seconds=NaN", "seconds=Infinity",
                    "accuracy=0", "accuracy=1.1", "uploads=0", "uploads=1e10", "updates=100000000000", "hours=3")),
    *(([*RUN, f"world.{odd}"], odd.partition("=")[0])
        for odd in ("devices=100000000000", "jitter=-1", "jitter=6", "max_staleness=0", "compute=fast", "network=3",
                    "availability=never", "faults=lost", "faults=[3]", 'faults=[{"kind":"lost","probability":2}]',
                    "clusters=many", 'clusters={"servers":0}', "speed=1")),
    *((["run", "-a", "fedper", "-s", f"compressor={odd}"], "compressor")
        for odd in ("zip", "topk(delta=0)", "topk(delta=2)", "topk(k=3)", "topk(", "3", "[]", "true")),
    (["run", "-a", "fedasync", "--threads", "-1"], "threads = "),
    (["run", "-a", "fedasync", "--pace", "1"], "a --pace is for a testbed"),
    (["run", "-a", "fedasync", "--scheduler", "node1"], "scheduler = 'node1' is not valid: write tcp://host:port"),
    (["run", "-a", "fedasync", "--scheduler", "tls://node1:1"], "tls://node1:1 takes certificates"),
    (["run", "-a", "fedasync", "--scheduler", "tcp://a:1", "--resume"], "--resume is for a simulation"),
    (["run", "-a", "fedasync", "--scheduler", "tcp://a:1", "--threads", "2"], "--threads is for a simulation"),
    (["run", "-a", "fedasync", "--scheduler", "tcp://a:1", "--device", "cpu"], "--device is for a simulation"),
    (["run", "-a", "fedasync", "--device", "gpu"], "device = 'gpu' is not valid: write cpu, cuda, or cuda:1"),
    (["work", "--device", "cuda:1st"], "device = 'cuda:1st' is not valid: write cpu, cuda, or cuda:1"),
    *((["run", "-a", "fedasync", "--checkpoint-every", odd], f"--checkpoint-every '{odd}' is not valid")
        for odd in ("", "-1s", "1d", "nans")),
    (["replay", "ffffffffffff", "--at", "3"], "'ffffffffffff' means 0 runs"),
    (["replay", "nowhere.json", "--at", "3"], "nowhere.json"),
    (["claims", "FEDASYNC-C999"], "unknown claim 'FEDASYNC-C999'"),
    *(([command, "--paper", "SINK"], "unknown paper 'SINK'") for command in ("claims", "plan", "work", "verify")),
    (["data", "import", "nowhere"], "nowhere"),
    (["data", "calibrate", "mnist"], "'mnist'"),
    (["data", "calibrate", "imdb", "--real"], "'imdb'"),
    ([*RUN, "world.trigger=timd(period_seconds=5)"], "trigger.kind = 'timd' is not valid; did you mean 'timed'?"),
    ([*RUN, 'world.faults=[{"kind":"lots"}]'], "world.faults[0].kind = 'lots' is not valid; did you mean 'lost'?"),
    ([*RUN, "world.faults=lost"], "'lost' is not valid: it should be a list, each an object with a kind"),
    ([*RUN, "alhpa=0.8"], "unknown setting 'alhpa'; did you mean 'alpha'? (valid: concurrency, alpha, weight"),
    ([*RUN, "lr=1"], "did you mean 'training.lr' or 'warmup.lr'?"),
    ([*RUN, "devices=9"], "did you mean 'world.devices'?"),
    ([*RUN, "alpha"], "'alpha' is no setting; write --set NAME=VALUE, for example --set alpha=0.8"),
    ([*RUN, "dataset=cifar"], "unknown data set 'cifar'; did you mean 'cifar10'? (valid: celeba"),
    (["run"], f"nothing to run: name an --algorithm (valid: {NAMES}) or a specification file"),
    (["run", "-a", "fedasinc"], f"unknown algorithm 'fedasinc'; did you mean 'fedasync'? (valid: {NAMES})"),
    (["run", *TINY, "--executor", "thread"], "did you mean 'threads'? (valid: batched, debug, sequential, thr"),
    (["run", *TINY, "--threads", "100000"], "threads = 100000 must be a whole number between 1 and 1024"),
    (["run", *TINY, "-s", "training.epochs=100000000000"], "training.epochs = 100000000000 is not valid"),
    (["run", *TINY, "-s", "world.devices=1000000000"], "world.devices = 1000000000 is not valid"),
    (["run", *TINY, "-s", "budget.seconds=9", "-s", "evaluation.every_seconds=1e-9"], "makes 9e+09 evaluations"),
    (["run", *TINY, "-s", "world.devices=5000"], "5000 devices with 50 samples each need 250000 samples"),
    (["plan", "--heavy", "--undecided"], "--heavy and --undecided count different runs: give one of them"),
    (["claims", "--json", "--csv"], "--json and --csv are two forms"),
    (["claims", "FEDASYNC-C01", "--export"], "--export writes all claims"),
    (["run", *TINY, "--out", "no/where.json"], "cannot write no/where.json: the folder"),
    (["run", *TINY, "--out", "a", "--save-model", "./a"], "--out and --save-model both write a"),
    *(([*RUN, f"alpha={odd * 100_000}"], "alpha = ") for odd in ("[", "-", '{"a":')),
    (["run", *TINY, "--out", "."], ". is a folder; give the name of a file"),
    (["run", "nowhere.json"], "cannot read the specification nowhere.json: No such file"),
    (["run", "-a", "fedasync", "--threads", "0"], "threads"),
    (["run", "-a", "fedasync", "--checkpoint-every", "soon"], "--checkpoint-every 'soon' is not valid: write a dur"),
    (["run", "."], "cannot read the specification ."),
    (["list", "algorithm"], "unknown list 'algorithm'; did you mean 'algorithms'?"),
    (["data", "get", "cifar11"], "unknown data set 'cifar11'"),
    *((["plan", "fedasync-fig2", "--seeds", odd], "seed") for odd in ("x", "1,,2", "1,1", "1.5", "", "-1")),
    *((["plan", "fedasync-fig2", "-j", odd], "jobs = ") for odd in ("0", "-1")),
    (["plan", "fedasync-*x"], "unknown artifact"),
    (["plan", "fedasync-fig2", "-P", "Laptop"], "unknown profile 'Laptop'; did you mean 'laptop'?"),
    (["plan", "fedasync-fig2", "--dataset", "mnist"], "'mnist'"),
    *((["work", "--jobs", odd], "jobs = ") for odd in ("0", "-1", "99999")),
    *((["work", "--minutes", odd], "minutes = ") for odd in ("0", "-1", "nan", "inf")),
    *((["verify", "--prefix", odd], "prefix = ") for odd in ("0", "-1", "1.5", "nan")),
    (["verify", "--sample", "0"], "sample = 0"),
    *((["verify", "--seconds", odd], "seconds = ") for odd in ("0", "-1", "nan")),
    (["verify", "fedasync-fig99"], "unknown artifact"),
    (["verify", "ffffffffffff"], "no stored record is meant by ffffffffffff"),
    (["results", "merge", "nowhere"], "nowhere is not a folder of results"),
    (["regenerate", "fedasync-fig99"], "unknown artifact or notebook 'fedasync-fig99'"),
    (["regenerate", "fedasync-fig2", "-p", "x=1"], "unknown override 'x'"),
    *((["regenerate", "fedasync-fig2", "-p", f"seeds={odd}"], "seeds")
        for odd in ("3", "[]", "[0,0]", "['a']", "[true]", "x")),
    *((["regenerate", "fedasync-fig2", "-p", odd], "")
        for odd in ("=1", "x", "dataset=mnist", "dataset=3", "profile=big")),
    (["regenerate", "fedasync-fig2", "-p", "alphas=" + "-" * 100_000], "alphas = "),
    (["regenerate", "start_here", "-p", "ALPA=1"], "unknown parameter 'ALPA'; did you mean 'ALPHA'?"),
    (["regenerate", "fedasync-fig2", "-P", "smoke", "-p", "profile=laptop"], "the profile is given twice"),
    (["regenerate", "fedasync-fig2", "-p", "seeds=[1]", "-p", "SEEDS=[2]"], "parameter 'SEEDS' is given twice"),
    (["regenerate", "fedasync-fig2", "-p", "alphas"], "'alphas' is no parameter; write NAME=VALUE"),
    *((["bench", f"--{each}", "0"], f"{each} = 0 must be at least 1") for each in ("pairs", "threads")),
    (["book", "--jobs", "0"], "jobs = 0 must be between 1 and 1024"),
    (["book", "-P", "big"], "unknown profile 'big'"),
    (["bench", "reference", "kernle"], "unknown part 'kernle'; did you mean 'kernel'? (valid: batched, blocks, "),
]  # fmt: skip
FILES: list[tuple[bytes, str]] = [
    *((text.encode(), "")
        for text in ("", "3", "null", '"fedasync"', "NaN")),
    *((text.encode(), "not valid JSON") for text in ("[" * 100_000, '{"a":' * 100_000)),
    (b"{", "not valid JSON: Expecting property name"),
    (b'{"algorithm": "fedasync", "seed": 1, "seed": 2}', "not valid JSON: the name 'seed' appears twice"),
    (b"[]", "a run specification is a JSON object, not list"),
    (b'{"seed": 1}', "a run needs an algorithm"),
    (b'{"algorithm": "fedavgg"}', "unknown algorithm 'fedavgg'; did you mean 'fedavg'"),
    (b'{"algorithm": "fedasync", "self": 1}', "unknown field 'self'"),
    (b"\xff\xfe\x00", "it is not UTF-8 text"),
    *((json.dumps(odd).encode(), "") for odd in (
        {}, {"algorithm": 3}, {"algorithm": None}, {"algorithm": {}}, {"algorithm": []}, {"algorithm": {"name": []}},
        {"algorithm": "fedasync", "more": 1}, {"algorithm": "fedasync", "seed": {"x": 1}},
        {"algorithm": {"name": "fedasync", "alpha": 2}}, {"algorithm": {"name": "fedasync", "beta": 2}},
        {"algorithm": "fedasync", "world": {"faults": [{"kind": "lots"}]}},
        {"algorithm": "fedasync", "world": {"compute": {"kind": "uniform", "fastest": 5, "slowest": 1}}},
        {"algorithm": "fedasync", "budget": {}}, {"algorithm": "fedasync", "evaluation": {"every_updates": 0}},
    )),
]  # fmt: skip


@pytest.mark.parametrize(("words", "says"), COMMANDS, ids=[" ".join(words)[:60] for words, _ in COMMANDS])
def test_a_wrong_command_is_refused_in_one_line(words: list[str], says: str, results: Path, monkeypatch):
    monkeypatch.setenv("FL_CORE_DATASETS", str(results))  # whatever data sets this checkout has got
    assert says in refused(*words)
    assert list(Path().iterdir()) == []
    assert not list(results.glob("*"))


@pytest.mark.parametrize(("content", "says"), FILES, ids=[str(content[:40]) for content, _ in FILES])
def test_a_wrong_file_is_refused_in_one_line_with_its_name(content: bytes, says: str):
    Path("spec.json").write_bytes(content)
    line = refused("run", "spec.json")
    assert says in line
    assert "spec.json" in line


def test_an_address_that_is_none_is_refused_before_a_chapter_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pipeline, "_execute", lambda *_: pytest.fail("it began"))
    monkeypatch.setenv(pipeline.SETTING, "github.com/someone")
    said = " = 'github.com/someone' is not valid: write https://github.com/owner/name, or …/tree/branch"
    assert refused("book") == f"FL_CORE_REPOSITORY{said}"
    monkeypatch.delenv(pipeline.SETTING)
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "github.com/someone"\n')
    with pytest.raises(pipeline.BookError, match=re.escape(f"Repository in pyproject.toml{said}")):
        pipeline.build_book("smoke", root=tmp_path)


@pytest.mark.parametrize("odd", ["two", "-3", "0", "1.5", "2000"])
def test_a_wrong_number_of_processes_in_the_environment_is_refused_as_on_the_line(odd: str, monkeypatch):
    monkeypatch.setenv("FL_CORE_JOBS", odd)
    assert refused("plan", "fedasync-fig2") == f"FL_CORE_JOBS = {odd} must be between 1 and 1024"


def test_what_the_system_refuses_is_one_line_too(results: Path, monkeypatch: pytest.MonkeyPatch):
    (results / ".packing.lock").mkdir(parents=True)
    assert refused("results", "pack") == f"{results}/.packing.lock: Is a directory"
    monkeypatch.setattr(catalogue, "text_of", lambda *_: Path("/dev/full").write_text("much"))
    assert refused("list") == "No space left on device"


def test_there_are_as_many_as_the_page_of_promises_says():
    for name, table in ("COMMANDS", COMMANDS), ("FILES", FILES):
        assert figure(ROOT, f"tests/cli/test_bad_input.py::{name}") == str(len(table))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_parameter_of_every_algorithm_refuses_what_is_no_value_of_it(name: str):
    wrong: tuple[Any, ...] = ({"odd": 1}, [[]], "\n", float("nan"), -1e300)
    for field, info in ALGORITHMS[name].model_fields.items():
        for value in (*wrong, *([True] if info.annotation in (int, float) else [])):
            if value == -1e300 and info.annotation is float and not info.metadata:
                continue  # any number will do
            with pytest.raises(SpecError) as found:
                RunSpec(algorithm={"name": name, field: value})
            assert "\n" not in str(found.value)
            assert field in str(found.value)
