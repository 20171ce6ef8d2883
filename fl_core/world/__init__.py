"""Floor 0: what is simulated besides learning: devices, network, edge servers, triggers and faults."""

from __future__ import annotations

from fl_core.world.availability import Availability, Calendar, PeriodicAvailability, TraceAvailability
from fl_core.world.compute import (
    Compute,
    ConstantCompute,
    ExponentialCompute,
    GapCompute,
    LogNormalCompute,
    RatioCompute,
    TraceCompute,
    UniformCompute,
    UniformTaskCompute,
)
from fl_core.world.faults import FAULTS, Fault, Interruption, Message
from fl_core.world.network import LinspaceBandwidth, Network, Spread, UniformBandwidth
from fl_core.world.topology import Clusters, Complete, EdgeList, ErdosRenyi, Graph, Path, Ring, Star
from fl_core.world.traces import (
    MeasuredBandwidth,
    PhoneBandwidth,
    PhoneCompute,
    Trace,
    TraceBandwidth,
    read_availability,
    read_bandwidth,
    read_compute,
    read_throughput,
)
from fl_core.world.triggers import TRIGGERS, Trigger
from fl_core.world.world import DeviceProfile, Devices, NamedWorld, Power, World, named_worlds

__all__ = [
    "FAULTS", "TRIGGERS", "Availability", "Calendar", "Clusters", "Complete", "Compute", "ConstantCompute",
    "DeviceProfile", "Devices", "EdgeList", "ErdosRenyi", "ExponentialCompute", "Fault", "GapCompute", "Graph",
    "Interruption", "LinspaceBandwidth", "LogNormalCompute", "MeasuredBandwidth", "Message", "NamedWorld", "Network",
    "Path", "PeriodicAvailability", "PhoneBandwidth", "PhoneCompute", "Power", "RatioCompute", "Ring", "Spread",
    "Star", "Trace", "TraceAvailability", "TraceBandwidth", "TraceCompute", "Trigger",
    "UniformBandwidth", "UniformCompute", "UniformTaskCompute", "World",
    "named_worlds", "read_availability", "read_bandwidth", "read_compute", "read_throughput",
]  # fmt: skip
