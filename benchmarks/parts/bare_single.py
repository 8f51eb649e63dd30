"""The peer of ``cold_start.py``: one image through the digits model with onnxruntime, numpy and PIL alone."""

import os
import sys

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # as the zoo has it: read by the import below

import numpy as np
import onnxruntime
from PIL import Image

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
SIZE = 32


def main(model: str, path: str) -> None:
    """Print the best class of an image and its score."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    image = Image.open(path).convert("RGB")
    scale = SIZE / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BILINEAR)
    left, top = (image.width - SIZE) // 2, (image.height - SIZE) // 2
    image = image.crop((left, top, left + SIZE, top + SIZE))
    array = (np.asarray(image, np.float32) / 255 - MEAN) / STD
    (logits,) = session.run(None, {"input": array.transpose(2, 0, 1)[None]})
    scores = np.exp(logits[0] - logits[0].max())
    scores /= scores.sum()
    best = int(scores.argmax())
    print(f"{path}: score {scores[best]:.6f}, label {best}")


if __name__ == "__main__":
    main(*sys.argv[1:])
