"""Evaluate a Conformer on recordings whose text is known: word error rate and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speech_recognition.task import SpeechRecognition

LENGTHS = [400, 800, 1600]  # frames of 10 ms with a plan on the card; longer recordings are read in windows
DATA = "../prompts_ctc/data/samples.jsonl"

if __name__ == "__main__":
    cli.valid(SpeechRecognition, ckpt="conformer_ctc_dyn.onnx", data_path=DATA, batch_size=16, lengths=LENGTHS)
