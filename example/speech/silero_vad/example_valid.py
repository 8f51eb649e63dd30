"""Evaluate Silero VAD on recorded phrases in noise: frame AUC, F1 and real-time factor."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.voice_activity.task import VoiceActivity

if __name__ == "__main__":
    cli.valid(VoiceActivity, ckpt="silero_vad_dyn.onnx", data_path="data/val.jsonl", batch_size=32)
