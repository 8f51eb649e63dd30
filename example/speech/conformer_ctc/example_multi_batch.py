"""Recognise every recording of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speech_recognition.task import SpeechRecognition

if __name__ == "__main__":
    # the card has a plan for each of these lengths, in frames of 10 ms; a longer recording is read in windows
    cli.multi(
        SpeechRecognition,
        ckpt="conformer_ctc_dyn.onnx",
        data_path="../prompts_ctc/data/samples",
        batch_size=16,
        lengths=[400, 800, 1600],
    )
