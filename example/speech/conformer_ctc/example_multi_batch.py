"""Recognise every recording of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speech_recognition import SPEECH_RECOGNITION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "conformer_ctc_dyn.onnx", HERE.parent / "prompts_ctc/data/samples"
    # the card has a plan for each of these lengths, in frames of 10 ms; a longer recording is read in windows
    cli.multi(__doc__, SPEECH_RECOGNITION, ckpt=ckpt, data_path=data, batch_size=16, lengths=[400, 800, 1600])
