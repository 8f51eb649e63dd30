"""Compare the recordings of a folder, each with each."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification import SPEAKER_VERIFICATION

HERE = Path(__file__).resolve().parent
CKPT = HERE / "voice_encoder_dyn.onnx"
RECORDINGS = "fetch:voices_en/usr/share/asterisk/sounds/en_US_f_Allison/followme"

if __name__ == "__main__":
    cli.multi(__doc__, SPEAKER_VERIFICATION, ckpt=CKPT, data_path=RECORDINGS, batch_size=16)
