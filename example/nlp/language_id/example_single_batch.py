"""Say which language one text is in: --text, or the first line of a file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.text_classification import TEXT_CLASSIFICATION

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "language_id_dyn.onnx", HERE / "data/sentences.txt"
    cli.single(__doc__, TEXT_CLASSIFICATION, ckpt=ckpt, data_path=data, batch_size=1)
