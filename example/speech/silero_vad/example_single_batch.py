"""Detect speech in one recording."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.voice_activity.task import VoiceActivity

if __name__ == "__main__":
    cli.single(VoiceActivity, ckpt="silero_vad_dyn.onnx", data_path="data/samples/two_phrases_en.wav")
