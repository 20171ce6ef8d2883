"""A specification is strict, says what would be valid, and has a name that never changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fl_core.algorithms import ALGORITHMS, FedAsync
from fl_core.errors import SpecError
from fl_core.experiments.explain import dotted_names, expected, explain
from fl_core.experiments.run import read_spec
from fl_core.experiments.spec import RunSpec

BASE = RunSpec(algorithm="fedasync")
DIRICHLET = {"min_samples": 1, "train_fraction": 1.0, "cuts": "round", "below_minimum": "top_up"}
NAMES = ", ".join(sorted(ALGORITHMS))
PARTITIONS = "dirichlet, dirichlet_per_device, iid, natural, shards, wkafl"


def message(**fields: Any) -> str:
    with pytest.raises(SpecError) as caught:
        RunSpec(**{"algorithm": "fedasync", **fields})
    text = str(caught.value)
    assert "\n" not in text
    return text


def algorithm(**parameters: Any) -> str:
    return message(algorithm={"name": "fedasync", **parameters})


@pytest.mark.parametrize("given", ["fedasync", {"name": "fedasync"}, FedAsync()])
def test_an_algorithm_is_given_as_name_mapping_or_object(given):
    assert RunSpec(algorithm=given) == BASE


def test_json_gives_back_the_same_specification():
    spec = RunSpec(
        algorithm={"name": "fedasync", "weight": "hinge(a=10, b=4)"},
        partition={"kind": "dirichlet", "alpha": 0.3},
        world={"compute": {"kind": "trace", "seconds_per_step": [1, 2.5] * 10}, "devices": 20},
        budget={"gradients": 100},
    )
    assert RunSpec.from_json(spec.to_json()) == spec
    assert RunSpec.from_json(json.dumps(json.loads(spec.to_json()), indent=2)).hash == spec.hash


def test_the_names_of_stored_runs_stay_what_they_are():
    """If this fails, every stored run has lost its name: raise ``FORMAT`` only if the numbers change as well."""
    assert BASE.hash == "4ac624b3f7d50e5d"
    assert RunSpec(seed=0, algorithm={"alpha": 0.6, "name": "fedasync"}).hash == BASE.hash
    others = {"seed": 1, "world.jitter": 0.1, "algorithm.alpha": 0.5, "algorithm": "fedavg", "budget.updates": 10}
    assert len({BASE.hash, *(BASE.changed(**{name: value}).hash for name, value in others.items())}) == 6


def test_changed_reaches_inside_and_leaves_the_original_alone():
    changed = BASE.changed(**{"world.devices": 50, "training.lr": 0.1, "algorithm.alpha": 0.8, "seed": 3})
    assert (changed.world.devices, changed.training.lr, changed.algorithm.alpha, changed.seed) == (50, 0.1, 0.8, 3)
    assert BASE.world.devices == 100


@pytest.mark.parametrize(
    ("settings", "part", "value"),
    [
        ({"partition": "dirichlet(alpha=0.3)"}, "partition", {"kind": "dirichlet", "alpha": 0.3} | DIRICHLET),
        (
            {"partition.alpha": 0.3, "partition.kind": "dirichlet"},
            "partition",
            {"kind": "dirichlet", "alpha": 0.3} | DIRICHLET,
        ),
        ({"algorithm": "fedavg"}, "algorithm", {"name": "fedavg", "clients_per_round": 10, "weighting": "uniform"}),
        (
            {"algorithm.name": "fedavg", "algorithm.clients_per_round": 3},
            "algorithm",
            {"name": "fedavg", "clients_per_round": 3, "weighting": "uniform"},
        ),
    ],
)
def test_another_kind_starts_from_its_own_defaults(settings, part, value):
    assert BASE.changed(**settings).to_dict()[part] == value


def test_a_weight_is_changed_by_text():
    changed = BASE.changed(**{"algorithm.weight": "hinge(a=10, b=4)"})
    assert changed == RunSpec(algorithm={"name": "fedasync", "weight": "hinge(a=10, b=4)"})


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"wrld.devices": 1}, "unknown field 'wrld.devices'; did you mean 'world.devices'?"),
        ({"world.devicez": 1}, "unknown field 'world.devicez'; did you mean 'devices'? (valid: devices, compute, "),
        ({"world.devices.x": 1}, "unknown field 'world.devices.x': devices = 100 has no fields"),
        ({"alpha": 0.8}, "did you mean 'algorithm.alpha' or 'partition.alpha'?"),
        ({"lr": 0.8}, "did you mean 'algorithm.lr' or 'training.lr' or 'warmup.lr'?"),
        ({"partition": "dirchlet(alpha=1)"}, "did you mean 'dirichlet'?"),
        ({"partition": "dirichlet(alpha=1"}, "cannot read partition = 'dirichlet(alpha=1'"),
    ],
)
def test_changing_what_is_not_there_names_what_is(settings, text):
    with pytest.raises(SpecError) as caught:
        BASE.changed(**settings)
    assert text in str(caught.value)


def test_unknown_names_come_with_the_nearest_and_all_valid_ones():
    assert message(algorithm="fedasinc") == (
        f"unknown algorithm 'fedasinc'; did you mean 'fedasync'? (valid: {NAMES})"
    )
    assert message(dataset="cifar").startswith("unknown data set 'cifar'; did you mean 'cifar10'? (valid: ")
    assert message(model="lenet").startswith("unknown model 'lenet'; did you mean 'lenet5'? (valid: alexnet, ")
    assert message(initialisation="glort").startswith("unknown initialisation 'glort'; did you mean 'glorot'?")
    assert message(preprocessing="fedasinc").startswith("unknown preprocessing 'fedasinc'; did you mean 'fedasync'?")
    assert algorithm(alhpa=0.8) == (
        "unknown parameter 'alhpa' of fedasync; did you mean 'alpha'? "
        "(valid: concurrency, alpha, weight, rho, schedule, step_epoch, step_factor, convention, drop_above, "
        "bn_start)"
    )
    assert message(partition={"kind": "dirchlet"}) == (
        f"partition.kind = 'dirchlet' is not valid; did you mean 'dirichlet'? (valid: {PARTITIONS})"
    )
    assert message(partition={}) == f"partition.kind is missing (valid: {PARTITIONS})"
    assert (
        "did you mean 'uniform'? "
        "(valid: constant, exponential, gap, lognormal, phones, ratio, trace, uniform, uniform_per_task)"
        in message(world={"compute": {"kind": "unifrm"}})
    )
    assert message(partition={"kind": "iid", "alpha": 1}) == (
        "unknown field 'partition.alpha' of kind 'iid' (valid: train_fraction, samples_per_device, remainder)"
    )
    assert message(training={"learning_rate": 1}).endswith(
        "(valid: lr, batch_size, epochs, steps, weight_decay, momentum, momentum_reset, order, lr_decay, "
        "lr_decay_versions)"
    )
    assert message(sede=1).startswith("unknown field 'sede'; did you mean 'seed'?")
    assert message(devices=1).startswith("unknown field 'devices'; did you mean 'world.devices'?")
    assert "weight.kind = 'hnge' is not valid; did you mean 'hinge'?" in algorithm(weight="hnge(a=1)")


@pytest.mark.parametrize("given", [None, 3, {"alpha": 0.5}, {"name": ["fedasync"]}])
def test_a_run_needs_the_name_of_an_algorithm(given):
    assert message(algorithm=given).endswith(f"(valid: {NAMES})")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"training": {"lr": -0.1}}, "training.lr = -0.1 is not valid: it should be a number > 0"),
        ({"training": {"lr": float("inf")}}, "training.lr = inf is not valid: it should be a finite number > 0"),
        ({"training": {"epochs": 1.5}}, "training.epochs = 1.5 is not valid: it should be an integer in [1, 100000]"),
        (
            {"training": {"steps": 0}},
            "training.steps = 0 is not valid: it should be an integer in [1, 10000000] or null",
        ),
        ({"training": 3}, "training = 3 is not valid: it should be an object with the fields lr, batch_size, "),
        ({"seed": -1}, "seed = -1 is not valid: it should be an integer in [0, 9223372036854775808)"),
        ({"model": 3}, "model = 3 is not valid: it should be text"),
        ({"partition": {"kind": "dirichlet"}}, "partition.alpha is missing: it should be a number > 0"),
        ({"partition": 3}, "partition = 3 is not valid: it should be an object with a kind (valid: dirichlet"),
        ({"budget": {}}, "a budget needs at least one of updates, gradients, seconds"),
        ({"world": {"compute": {"kind": "uniform", "fastest": -1}}}, "world.compute.fastest = -1 is not valid"),
        ({"world": {"compute": {"kind": "uniform", "fastest": 9}}}, "must not be below fastest = 9"),
        (
            {"world": {"compute": {"kind": "trace", "seconds_per_step": [1, -2]}}},
            "world.compute.seconds_per_step[1] = -2 is not valid: it should be a number > 0",
        ),
        (
            {"world": {"devices": 0, "jitter": 9}},
            "world.devices = 0 is not valid: it should be an integer in [1, 10000000]; "
            "world.jitter = 9 is not valid: it should be a number in [0, 5]",
        ),
        (
            {"algorithm": {"name": "fedasync", "concurrency": 200}},
            "fedasync wants 200 devices in flight, but the world has devices = 100; choose at most 100",
        ),
        (
            {"algorithm": {"name": "fedasync", "schedule": "stp"}},
            "schedule = 'stp' is not valid: it should be one of 'constant', 'step', 'inv_sqrt'; did you mean 'step'?",
        ),
        ({"algorithm": {"name": "fedasync", "weight": "hinge(a=-1)"}}, "weight.a = -1 is not valid: it should be a"),
        ({"algorithm": {"name": "fedasync", "alpha": 0}}, "alpha = 0 is not valid: it should be a number in (0, 1]"),
        ({"algorithm": {"name": "fedasync", "alpha": float("nan")}}, "alpha = nan is not valid: it should be a"),
    ],
)
def test_a_value_out_of_range_is_shown_with_its_range(fields, text):
    assert text in message(**fields)


def test_a_long_value_is_cut():
    assert len(message(partition={"kind": "iid", "samples_per_device": "x" * 10_000})) < 200


def test_any_model_is_explained():
    class Options(BaseModel):
        model_config = ConfigDict(extra="forbid")
        shares: tuple[float, ...] = (0.5,)
        size: int = Field(3, ge=1, lt=9)

    with pytest.raises(ValidationError) as caught:
        Options(shares=3, size=9, siez=1)
    assert explain(caught.value, Options, owner="options") == (
        "shares = 3 is not valid: it should be a list, each a number; "
        "size = 9 is not valid: it should be an integer in [1, 9); "
        "unknown parameter 'siez' of options; did you mean 'size'? (valid: shares, size)"
    )
    assert "size = 9 is not valid: it should be less than 9" in explain(caught.value)
    assert list(dotted_names(Options)) == ["shares", "size"]
    assert expected(int | None, ()) == "an integer or null"


def test_the_file_of_a_result_stands_for_its_specification(tmp_path):
    spec = RunSpec(algorithm="fedasync", seed=3)
    (tmp_path / "result.json").write_text(json.dumps({"spec": spec.to_dict(), "history": {}}))
    assert read_spec(tmp_path / "result.json") == spec
    assert read_spec(tmp_path / "result.json", seed=4).seed == 4
