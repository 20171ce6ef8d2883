"""SD-FEEL's world, with the numbers of the specification."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fl_core.world import Clusters, GapCompute, Network, World
from fl_core.world.compute import Ratio
from fl_core.world.named import NamedWorld

BITS_PER_PARAMETER = 32


class SDFeelWorld(NamedWorld):
    """SD-FEEL: six edge servers in a ring, each with five devices; speeds with a gap of exactly H (2.4, section 6).

    The times are those of the paper's ResNet-18 on CIFAR-10: 55.67 s for a step at the mean speed, 71.5 s for an
    upload over 5 Mb/s, 35.8 s from server to server over 10 Mb/s, downloads free.

    Attributes
    ----------
    devices, servers : int
        Numbers of devices and of edge servers.
    heterogeneity_gap : float
        Fastest to slowest speed H: 5, 10 or 30 in the paper.
    step_cost : str
        ``"printed"``, or ``"flop_consistent"``: a tenth, as a step has 10 samples and not 100 (E-19).
    parameters : int
        Size of the model that is really sent. The bandwidth follows, so that an upload takes the paper's time.
    communication : float
        Factor of both communication times; scale it together with the least number of mini-batches (D12).
    """

    name: ClassVar[str] = "sdfeel"
    devices: int = Field(30, ge=1)
    servers: int = Field(6, ge=1)
    heterogeneity_gap: Ratio = 5.0
    step_cost: Literal["printed", "flop_consistent"] = "printed"
    parameters: int = Field(11_173_962, ge=1)
    communication: float = Field(1.0, gt=0, allow_inf_nan=False)

    def world(self) -> World:
        resnet18 = 11_173_962
        seconds = {"printed": 55.67, "flop_consistent": 5.5665152}[self.step_cost]
        return World(
            devices=self.devices,
            compute=GapCompute(ratio=self.heterogeneity_gap, seconds_per_step=seconds),
            network=Network(up_bits_per_second=5e6 * self.parameters / resnet18 / self.communication),
            clusters=Clusters(
                servers=self.servers, backhaul_seconds=BITS_PER_PARAMETER * resnet18 / 10e6 * self.communication
            ),
        )
