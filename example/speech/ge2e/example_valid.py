"""Evaluate the voice encoder: verification of pairs of recordings."""

import sys
from pathlib import Path

from voices import DRAWN, VOICES

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification.task import SpeakerVerification

CKPT = "voice_encoder_dyn.onnx"

if __name__ == "__main__":
    cli.valid(SpeakerVerification, ckpt=CKPT, data_path=VOICES, batch_size=64, **DRAWN)
