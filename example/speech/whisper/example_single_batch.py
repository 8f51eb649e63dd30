"""Write down what is said in a recording."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.speech_transcription import SPEECH_TRANSCRIPTION

HERE = Path(__file__).resolve().parent
CKPT = {part: HERE / f"whisper_tiny_{part}_dyn.onnx" for part in ("encoder", "decoder")}
RECORDINGS = "fetch:voices_en/usr/share/asterisk/sounds/en_US_f_Allison/followme"

if __name__ == "__main__":
    cli.single(__doc__, SPEECH_TRANSCRIPTION, ckpt=CKPT, data_path=f"{RECORDINGS}/status.wav", batch_size=1)
