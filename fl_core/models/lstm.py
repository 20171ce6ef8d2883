"""FedLuck's recurrent network for spoken words."""

from __future__ import annotations

from torch import Tensor, nn

from fl_core.models.sizes import Width, image_shape, scaled


class LSTM(nn.Module):
    """Two LSTM layers of 128 that read an image of one channel row by row, and a dense layer on the last state.

    Notes
    -----
    216,330 parameters for ``(1, 32, 32)`` and 10 classes. The initial state is zero. A row of the image is a step,
    not a frame of the sound (FedLuck specification, A23).
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: Width = 1.0) -> None:
        super().__init__()
        _, _, columns = image_shape("lstm", shape, channels=1)
        [hidden] = scaled(width, 128)
        self.lstm = nn.LSTM(columns, hidden, num_layers=2, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images ``[n, 1, steps, inputs]`` to logits ``[n, classes]``."""
        states, _ = self.lstm(images.squeeze(1))
        return self.fc(states[:, -1])
