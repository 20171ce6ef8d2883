"""The table of networks says what they weigh, and is complete."""

from __future__ import annotations

from fl_core.models import MODELS, FlatModel, Size, build_network, network_size
from fl_core.report.networks import USES, Use, networks_table


def test_every_network_has_a_row():
    assert {use.model for use in USES} == set(MODELS)


def test_counting_without_memory_gives_what_the_real_network_has():
    flat = FlatModel(build_network("resnet20(width=0.5)", (3, 32, 32), 10))
    size = network_size("resnet20(width=0.5)", (3, 32, 32), 10)
    assert (size.parameters, size.parameters + size.buffers) == (len(flat.parameters), len(flat.vector))


def test_an_upload_is_four_bytes_a_number_buffers_included():
    assert Size(2**18 - 100, 100).mebibytes == 1
    assert round(network_size("fedluck_cnn", (1, 32, 32), 10).mebibytes, 10) == 0.8929824829  # FedLuck, 6.1


def test_the_table_puts_the_stated_number_beside_ours():
    [row] = networks_table((Use("linear", (1, 2, 2), 3, "toy", "fc", 99, "nobody"),)).frame.to_dict("records")
    assert (row["parameters"], row["stated"], row["input"]) == (15, "99 (nobody)", "1 × 2 × 2")
