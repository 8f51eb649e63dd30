"""Write down what is said in a recording."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.parallel_transcription import PARALLEL_TRANSCRIPTION

HERE = Path(__file__).resolve().parent
CKPT = {part: HERE / f"paraformer_tiny_{part}_dyn.onnx" for part in ("encoder", "decoder")}
DATA = HERE.parent / "prompts_ctc" / "data"

if __name__ == "__main__":
    cli.single(__doc__, PARALLEL_TRANSCRIPTION, ckpt=CKPT, data_path=DATA / "samples/conf-kicked.wav", batch_size=1)
