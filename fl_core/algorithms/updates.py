"""What methods have in common whose devices send compressed updates: the received model minus the trained one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from fl_core.formulas.compression import CompressorBase
from fl_core.formulas.compression import error_feedback as feed_back
from fl_core.formulas.fedluck import server_step

if TYPE_CHECKING:
    from fl_core.runtime import DeviceHandle, ServerHandle, Snapshot, Trained, Upload

Weighting = Literal["uniform", "samples"]


async def upload_update(
    device: DeviceHandle,
    start: Snapshot,
    trained: Trained,
    compressor: CompressorBase,
    *,
    error_feedback: bool = False,
) -> None:
    """Upload `start` minus the trained model as ``delta`` ``[d]``; time and bytes are those of the compressed form.

    Only parameters are compressed; statistics (batch normalisation) are sent, and counted, as they are. With error
    feedback the device keeps what was not sent as ``device.state["residual"]`` ``[p]``. An update that is not finite
    cannot be compressed: it is sent for the server to reject.
    """
    delta = start.model - trained.model
    parameters, statistics = delta.tensor_split([device.num_parameters])
    size = compressor.counted_bytes(len(parameters), delta.dtype, device.segments) + statistics.nbytes
    if torch.isfinite(parameters).all():
        if error_feedback:
            parameters, device.state["residual"] = feed_back(
                compressor, parameters, device.state.get("residual"), device.rng, device.segments
            )
        else:
            parameters = compressor.compress(parameters, device.rng, device.segments)
    await device.upload(delta=torch.cat([parameters, statistics]), based_on=start, bytes_up=size)


def commit_mean(server: ServerHandle, uploads: list[Upload], global_lr: float, weighting: Weighting) -> None:
    """Commit w - eta_g mean of the uploaded updates, FedLuck's Eq. 6; without uploads the model stays (E2)."""
    if not uploads:
        server.commit(server.model)
        return
    counts = [1 if weighting == "uniform" else upload.num_samples for upload in uploads]
    deltas = torch.stack([upload.delta for upload in uploads])
    model = server_step(server.model, deltas, global_lr, None if weighting == "uniform" else counts)
    server.commit(model, weight=[global_lr * count / sum(counts) for count in counts])
