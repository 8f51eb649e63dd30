"""Transcribe a recording."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.nonautoregressive_asr import ParallelTranscription

CKPT = {part: f"paraformer_tiny_{part}_dyn.onnx" for part in ("encoder", "decoder")}
DATA = "../prompts_ctc/data"

if __name__ == "__main__":
    cli.single(ParallelTranscription, ckpt=CKPT, data_path=f"{DATA}/samples/conf-kicked.wav")
