"""What methods with edge servers have in common: normalised updates of a cluster's devices, and their aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fl_core.formulas.sdfeel import intra_cluster_aggregate, normalized_update

if TYPE_CHECKING:
    from fl_core.runtime import Cluster, DeviceHandle, ServerHandle, Snapshot, Trained, Upload


async def upload_normalized(device: DeviceHandle, start: Snapshot, trained: Trained) -> None:
    """Upload Delta_i (SD-FEEL, Eq. 2) as ``delta`` ``[d]``.

    Statistics (batch normalisation) are sent as they are, for a plain mean: differences that are scaled up could
    make a variance negative (A-06). They are not counted in the size of the upload, as in the paper.
    """
    count = device.num_parameters
    update = normalized_update(trained.model[:count], start.model[:count], trained.steps)
    delta = torch.cat([update, trained.model[count:]]) if len(trained.model) > count else update
    await device.upload(delta=delta, based_on=start, bytes_up=update.nbytes)


def aggregated(server: ServerHandle, uploads: Sequence[Upload]) -> Tensor:
    """Return the server's model ``[d]`` with the cluster's `uploads` applied (Eq. 3); without any, as it is.

    Shares of the data are those among the devices whose uploads are there.
    """
    if not uploads:
        return server.model
    ordered = sorted(uploads, key=lambda upload: upload.device)
    count, weights = server.num_parameters, shares(ordered)
    model = intra_cluster_aggregate(
        server.model[:count], [u.delta[:count] for u in ordered], weights, [u.steps for u in ordered]
    )
    if len(server.model) == count:
        return model
    statistics = [weight * upload.delta[count:] for weight, upload in zip(weights, ordered, strict=True)]
    return torch.cat([model, sum(statistics[1:], statistics[0])])


def shares(uploads: Sequence[Upload]) -> list[float]:
    """Return m-hat_i for each of `uploads`, in their order."""
    total = sum(upload.num_samples for upload in uploads)
    return [upload.num_samples / total for upload in uploads]


def cluster_weights(clusters: Sequence[Cluster]) -> list[float]:
    """Return m-tilde_d of all clusters."""
    total = sum(cluster.samples for cluster in clusters)
    return [cluster.samples / total for cluster in clusters]
