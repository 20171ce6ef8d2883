"""Edge servers: which devices belong to which, and which servers talk to each other."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, combinations, pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from fl_core.config import Config, Duration, Family
from fl_core.errors import SpecError

Edge = tuple[int, int]


class Graph(Family):
    """Which servers are neighbours."""

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        """Return the pairs of neighbours; the graph that they make is connected."""
        raise NotImplementedError


class Ring(Graph):
    """Every server has two neighbours."""

    kind: Literal["ring"] = "ring"

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        return [(server, (server + 1) % servers) for server in range(servers if servers > 1 else 0)]


class Complete(Graph):
    """All servers are neighbours of each other."""

    kind: Literal["complete"] = "complete"

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        return combinations(range(servers), 2)


class Star(Graph):
    """Server 0 is the neighbour of all others, which have no other."""

    kind: Literal["star"] = "star"

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        return [(0, server) for server in range(1, servers)]


class Path(Graph):
    """A ring that is cut open."""

    kind: Literal["path"] = "path"

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        return pairwise(range(servers))


class ErdosRenyi(Graph):
    """Every pair of servers is an edge with the same probability; drawn again until the graph is connected."""

    kind: Literal["erdos_renyi"] = "erdos_renyi"
    probability: float = Field(0.5, gt=0, le=1)

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        pairs = np.array(list(combinations(range(servers), 2)), dtype=int).reshape(-1, 2)
        attempts = 1000
        for _ in range(attempts):
            edges: list[Edge] = [(int(a), int(b)) for a, b in pairs[rng.random(len(pairs)) < self.probability]]
            if not _unreached(neighbours(servers, edges)):
                return edges
        what = f"no connected graph of {servers} servers in {attempts} draws with probability = {self.probability}"
        raise SpecError(f"{what}; choose a larger one")


class EdgeList(Graph):
    """Neighbours as given."""

    kind: Literal["edges"] = "edges"
    pairs: tuple[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]], ...]
    """Pairs of server numbers, which count from 0."""

    def edges(self, servers: int, rng: np.random.Generator) -> Iterable[Edge]:
        return self.pairs

    def check(self, servers: int) -> None:
        for pair in self.pairs:
            if pair[0] == pair[1] or max(pair) >= servers:
                raise ValueError(f"pairs: {pair} should be two different servers of 0 to {servers - 1}")
        if missing := _unreached(neighbours(servers, self.pairs)):
            raise ValueError(f"pairs: no path leads from server 0 to server {min(missing)}")


def _from_networkx(value: Any) -> Any:
    """Read a graph of networkx by its edges, its nodes numbered in their order."""
    if not type(value).__module__.startswith("networkx"):
        return value
    number = {node: place for place, node in enumerate(value.nodes)}
    pairs = sorted(tuple(sorted((number[a], number[b]))) for a, b in value.edges)
    return {"kind": "edges", "pairs": tuple(pairs)}


class Clusters(Config):
    """Devices in clusters, by blocks of their numbers; each has an edge server (SD-FEEL)."""

    servers: int = Field(6, ge=1)
    """Number of clusters; the devices are divided equally, the first clusters get one more if that leaves a rest."""
    sizes: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Devices of each cluster, instead of equal ones."""
    graph: Annotated[Graph, BeforeValidator(_from_networkx)] = Ring()
    """Which servers exchange models; also any connected ``networkx.Graph``, which is kept as the list of its
    edges."""
    backhaul_seconds: Duration = 0.0
    """Time to send a model from server to server: a part of each iteration, which the algorithm counts in its
    deadline (:meth:`fl_core.runtime.ServerHandle.exchange`)."""

    @model_validator(mode="before")
    @classmethod
    def _count(cls, data: Any) -> Any:
        if isinstance(data, dict) and "servers" not in data and isinstance(data.get("sizes"), list | tuple):
            return {**data, "servers": len(data["sizes"])}
        return data

    @model_validator(mode="after")
    def _fits(self) -> Clusters:
        if self.sizes is not None and len(self.sizes) != self.servers:
            raise ValueError(f"sizes has {len(self.sizes)} entries for servers = {self.servers}")
        self.graph.check(self.servers)
        return self

    def check(self, devices: int) -> None:
        """Refuse a number of devices that can't be divided like this."""
        if self.sizes is not None and sum(self.sizes) != devices:
            raise ValueError(f"clusters: sizes add up to {sum(self.sizes)} for devices = {devices}")
        if self.servers > devices:
            raise ValueError(f"clusters: servers = {self.servers} must not exceed devices = {devices}")

    def bounds(self, devices: int) -> list[int]:
        """Return the first device of each cluster, and at last the number of devices."""
        least, rest = divmod(devices, self.servers)
        sizes = self.sizes or [least + (server < rest) for server in range(self.servers)]
        return [0, *accumulate(sizes)]


def neighbours(servers: int, edges: Iterable[Edge]) -> list[tuple[int, ...]]:
    """Return the neighbours of each server, in order of their numbers."""
    found: list[set[int]] = [set() for _ in range(servers)]
    for a, b in edges:
        found[a].add(b)
        found[b].add(a)
    return [tuple(sorted(others)) for others in found]


def _unreached(adjacent: list[tuple[int, ...]]) -> set[int]:
    """Return the servers to which no path leads from server 0."""
    left, front = set(range(1, len(adjacent))), [0]
    while front:
        new = left.intersection(adjacent[front.pop()])
        left -= new
        front += new
    return left
