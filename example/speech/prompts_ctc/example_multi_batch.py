"""Recognise every recording of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speech_recognition.task import SpeechRecognition

LENGTHS = [306, 606, 1206]  # frames of 10 ms with a plan on the card; longer recordings are read in windows

if __name__ == "__main__":
    cli.multi(SpeechRecognition, ckpt="prompts_ctc_dyn.onnx", data_path="data/samples", batch_size=16, lengths=LENGTHS)
