"""The convolutional network for sentences (Kim, 2014)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from fl_core.models.sizes import Width, scaled, token_length
from fl_core.models.units import HiddenLayer

Vocabulary = Annotated[int, Field(ge=2, description="Number of different tokens; ids are below it, 0 is padding.")]


class TextCNN(nn.Module):
    """TextCNN: an embedding of 128 numbers, 100 convolutions each over 3, 4 and 5 tokens, maximum over time.

    Notes
    -----
    2,714,502 parameters for a vocabulary of 20,000 and 2 classes (FedASMU specification, 6.2). The embedding of the
    padding is zero and stays so.
    """

    def __init__(
        self, shape: tuple[int, ...], classes: int, vocabulary: Vocabulary = 20_000, width: Width = 1.0
    ) -> None:
        super().__init__()
        token_length("textcnn", shape, shortest=5)
        size, filters = scaled(width, 128, 100)
        self.embedding = nn.Embedding(vocabulary, size, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv2d(size, filters, (1, tokens)) for tokens in (3, 4, 5))
        self.fc = nn.Linear(3 * filters, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token ids ``[n, length]`` to logits ``[n, classes]``."""
        # As an image one pixel high, laid out channels-last, a sentence takes PyTorch's faster kernels.
        embedded = self.embedding(tokens).transpose(1, 2).unsqueeze(2)
        maxima = [convolution(embedded).amax((2, 3)) for convolution in self.convolutions]
        return self.fc(F.relu(torch.cat(maxima, 1)))

    def hidden_layers(self) -> list[HiddenLayer]:
        """Return the three convolutions, whose outputs the dense layer reads side by side."""
        filters = self.fc.in_features // 3
        return [
            HiddenLayer(convolution, None, self.fc, number * filters, filters)
            for number, convolution in enumerate(self.convolutions)
        ]
