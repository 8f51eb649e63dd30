"""The historical engine class for models exported from PaddlePaddle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, ClassVar

from engine import tecoinfer_pytorch


class TecoInferEngine(tecoinfer_pytorch.TecoInferEngine):
    """As :class:`engine.tecoinfer_pytorch.TecoInferEngine`, with positional arguments in another order, and ``half``.

    Args:
        task, model, ckpt, target, dtype, save_engine, batch_size, input_size, input_name, divided, rank: as there.
        half: historical switch of the TensorRT path; accepted and ignored, ``dtype`` sets the precision.
        ignored: further positional arguments.
        keywords: every other keyword of the PyTorch class, by name.
    """

    _caller: ClassVar[int] = 3

    def __init__(
        self,
        task: str | None = None,
        model: str | os.PathLike[str] | None = None,
        ckpt: str | os.PathLike[str] | None = None,
        target: str = "sdaa",
        dtype: str = "float32",
        half: bool | None = None,
        save_engine: bool = False,
        batch_size: int | None = None,
        input_size: Sequence[Any] | None = None,
        input_name: str | Sequence[str] | None = None,
        divided: bool = True,
        rank: int = 0,
        *ignored: object,
        **keywords: Any,
    ) -> None:
        super().__init__(
            task=task,
            model=model,
            ckpt=ckpt,
            target=target,
            dtype=dtype,
            save_engine=save_engine,
            batch_size=batch_size,
            input_size=input_size,
            input_name=input_name,
            divided=divided,
            rank=rank,
            **keywords,
        )
        self.half = half if half is not None else self.engine.dtype == "float16"
