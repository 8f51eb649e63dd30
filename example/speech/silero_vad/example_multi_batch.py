"""Say where somebody speaks in each recording of a folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.voice_activity import VOICE_ACTIVITY

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "silero_vad_dyn.onnx", HERE / "data/samples"
    cli.multi(__doc__, VOICE_ACTIVITY, ckpt=ckpt, data_path=data, batch_size=8)
