"""Evaluate the PyTorch network that the ONNX files were exported from: the metric of the source framework."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))

from example_valid import DATA, LENGTHS
from prompts import ALPHABET

from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.tasks.speech_recognition.task import SpeechRecognition

with needed(__file__):
    import torch
    from model import PromptsCTC

    from utils.export.torch_engine import pytorch_target
    from utils.export.weight_files import load_weights


def network() -> torch.nn.Module:
    """Return the network with the weights of ``prompts_ctc.pth``."""
    return load_weights(PromptsCTC(len(ALPHABET) + 1), HERE / "prompts_ctc.pth")


if __name__ == "__main__":
    cli.valid(
        SpeechRecognition, ckpt="prompts_ctc_dyn.onnx", data_path=DATA, batch_size=16, lengths=LENGTHS,
        target=pytorch_target(network),
    )  # fmt: skip
