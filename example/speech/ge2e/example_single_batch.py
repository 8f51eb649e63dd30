"""Compare the voices of two recordings."""

import sys
from pathlib import Path

from voices import PAIR

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification.task import SpeakerVerification

if __name__ == "__main__":
    cli.single(SpeakerVerification, ckpt="voice_encoder_dyn.onnx", data_path=PAIR)
