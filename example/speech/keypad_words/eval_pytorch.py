"""Evaluate the PyTorch network that the ONNX files were exported from: the metric of the source framework."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.tasks.sound_classification.task import SoundClassification

with needed(__file__):
    import torch
    from model import KeypadWords
    from words import LABELS

    from utils.export.torch_engine import pytorch_target
    from utils.export.weight_files import load_weights


def network() -> torch.nn.Module:
    """Return the network with the weights of ``keypad_words.pth``."""
    return load_weights(KeypadWords(len(LABELS)), HERE / "keypad_words.pth")


if __name__ == "__main__":
    cli.valid(
        SoundClassification, ckpt="keypad_words_dyn.onnx", data_path="data", batch_size=32,
        target=pytorch_target(network),
    )  # fmt: skip
