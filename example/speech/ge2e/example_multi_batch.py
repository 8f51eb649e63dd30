"""Compare all pairs of recordings of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification.task import SpeakerVerification

CKPT = "voice_encoder_dyn.onnx"
RECORDINGS = "fetch:voices_en/usr/share/asterisk/sounds/en_US_f_Allison/followme"

if __name__ == "__main__":
    cli.multi(SpeakerVerification, ckpt=CKPT, data_path=RECORDINGS, batch_size=16)
