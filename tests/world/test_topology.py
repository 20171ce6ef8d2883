"""Devices belong to servers by blocks, and servers form a connected graph."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from refusals import refuses

from fl_core.errors import SpecError
from fl_core.world import Clusters, Devices, EdgeList, ErdosRenyi, World


def realise(devices: int, seed: int = 0, **fields: object) -> Devices:
    return World.model_validate({"devices": devices, "clusters": fields}).realise(seed)


def graph(servers: int, seed: int = 0, **fields: object) -> list[tuple[int, ...]]:
    devices = realise(servers, seed, servers=servers, graph=fields)
    return [devices.neighbours(server) for server in range(servers)]


def test_without_clusters_there_is_one_server():
    devices = World(devices=5).realise(0)
    assert (devices.num_servers, devices.members(0), devices.neighbours(0)) == (1, range(5), ())
    assert devices.backhaul_seconds == 0


@pytest.mark.parametrize(
    ("devices", "fields", "blocks"),
    [
        (30, {}, [range(0, 5), range(5, 10), range(10, 15), range(15, 20), range(20, 25), range(25, 30)]),
        (7, {"servers": 3}, [range(0, 3), range(3, 5), range(5, 7)]),
        (7, {"sizes": [1, 4, 2]}, [range(0, 1), range(1, 5), range(5, 7)]),
    ],
)
def test_devices_are_divided_by_blocks(devices, fields, blocks):
    drawn = realise(devices, **fields)
    assert [drawn.members(server) for server in range(drawn.num_servers)] == blocks


@given(st.integers(1, 40), st.data())
def test_every_device_has_one_server(devices, data):
    drawn = realise(devices, servers=data.draw(st.integers(1, devices)))
    sizes = [len(drawn.members(server)) for server in range(drawn.num_servers)]
    assert [device for server in range(drawn.num_servers) for device in drawn.members(server)] == [*range(devices)]
    assert max(sizes) - min(sizes) <= 1
    assert all(device in drawn.members(drawn.server_of(device)) for device in range(devices))


@pytest.mark.parametrize(
    ("servers", "kind", "expected"),
    [
        (6, "ring", [(1, 5), (0, 2), (1, 3), (2, 4), (3, 5), (0, 4)]),
        (2, "ring", [(1,), (0,)]),
        (1, "ring", [()]),
        (4, "complete", [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]),
        (4, "star", [(1, 2, 3), (0,), (0,), (0,)]),
        (4, "path", [(1,), (0, 2), (1, 3), (2,)]),
    ],
)
def test_graphs_by_hand(servers, kind, expected):
    assert graph(servers, kind=kind) == expected


def test_given_edges_count_in_both_directions_and_once():
    assert graph(3, kind="edges", pairs=[[0, 1], [1, 0], [2, 1]]) == [(1,), (0, 2), (1,)]


@given(st.integers(1, 12), st.sampled_from([0.3, 0.6, 1.0]), st.integers(0, 2**32))
def test_a_random_graph_is_symmetric_connected_and_the_same_for_the_same_seed(servers, probability, seed):
    drawn = graph(servers, seed, kind="erdos_renyi", probability=probability)
    assert drawn == graph(servers, seed, kind="erdos_renyi", probability=probability)
    assert all(a in drawn[b] and a != b for a in range(servers) for b in drawn[a])
    reached = {0}
    for _ in range(servers):
        reached |= {b for a in reached for b in drawn[a]}
    assert reached == {*range(servers)}
    if probability == 1:
        assert drawn == graph(servers, kind="complete")


def test_a_graph_that_is_never_connected_is_an_error():
    with pytest.raises(SpecError, match=r"no connected graph of 10 servers in 1000 draws with probability = 0\.01"):
        World(devices=10, clusters=Clusters(servers=10, graph=ErdosRenyi(probability=0.01))).realise(0)


test_clusters_that_cannot_be_are_refused = refuses(
    ValidationError,
    ({"servers": 11}, "servers = 11 must not exceed devices = 10"),
    ({"sizes": [3, 3]}, "sizes add up to 6 for devices = 10"),
    ({"servers": 3, "sizes": [5, 5]}, "sizes has 2 entries for servers = 3"),
    ({"servers": 3, "graph": {"kind": "edges", "pairs": [[0, 1]]}}, "no path leads from server 0 to server 2"),
    ({"servers": 2, "graph": {"kind": "edges", "pairs": [[0, 2]]}}, r"\(0, 2\) should be two different servers"),
    ({"servers": 2, "graph": {"kind": "edges", "pairs": [[1, 1]]}}, r"\(1, 1\) should be two different servers"),
    by=lambda fields: World(devices=10, clusters=Clusters(**fields)),
)


@pytest.mark.parametrize(
    "graph",
    [nx.cycle_graph(5), nx.star_graph(4), nx.complete_graph(3), nx.erdos_renyi_graph(7, 0.6, seed=2)],
    ids=str,
)
def test_a_graph_of_networkx_is_read_by_its_edges(graph):
    count = len(graph)
    devices = realise(count, servers=count, graph=graph)
    assert [devices.neighbours(node) for node in range(count)] == [
        tuple(sorted(graph[node])) for node in range(count)
    ]
    clusters = Clusters(servers=count, graph=graph)
    assert Clusters.model_validate_json(clusters.model_dump_json()) == clusters


def test_nodes_of_networkx_count_in_their_order():
    graph = nx.Graph([("b", "a"), ("a", "c")])
    assert Clusters(servers=3, graph=graph).graph == EdgeList(pairs=((0, 1), (1, 2)))
    with pytest.raises(ValidationError, match="no path leads from server 0 to server 2"):
        Clusters(servers=3, graph=nx.Graph([("b", "a")]))
