"""One output of a model of transformers, for export."""

from __future__ import annotations

from typing import Any

import torch


class Picked(torch.nn.Module):  # type: ignore[misc]  # torch is not typed here
    """A model of images, and the field of its answer that is exported."""

    def __init__(self, model: Any, field: str) -> None:
        super().__init__()
        self.model, self.field = model, field

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the name of the file's input
        """Return the field for N x C x H x W images."""
        found: torch.Tensor = getattr(self.model(pixel_values=input), self.field)
        return found
