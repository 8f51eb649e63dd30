"""The historical face of the engines for models exported from PaddlePaddle."""

from __future__ import annotations

from typing import Any

from engine import tecoinfer_pytorch


class TecoInferEngine(tecoinfer_pytorch.TecoInferEngine):
    """As :class:`engine.tecoinfer_pytorch.TecoInferEngine`; the Paddle scripts also pass ``half``.

    Args:
        half: historical switch of the TensorRT path; ``dtype`` decides, so it is accepted and ignored.
        keywords: every keyword of the PyTorch face, by name.
    """

    def __init__(self, *, half: bool | None = None, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.half = half if half is not None else self.spec.dtype == "float16"
