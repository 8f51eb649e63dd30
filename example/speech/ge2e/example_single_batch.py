"""Say whether one person speaks in two recordings."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speaker_verification.task import SpeakerVerification

CKPT = "voice_encoder_dyn.onnx"
SOUNDS = "usr/share/asterisk/sounds"
ENGLISH, SPANISH = f"fetch:voices_en/{SOUNDS}/en_US_f_Allison", f"fetch:voices_es/{SOUNDS}/es_MX_f_Allison"

if __name__ == "__main__":
    cli.single(
        SpeakerVerification,
        ckpt=CKPT,
        data_path={"first": f"{ENGLISH}/agent-alreadyon.wav", "second": f"{SPANISH}/agent-alreadyon.wav"},
    )
