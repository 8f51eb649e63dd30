"""Find what texts name in one picture with OWLv2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.open_vocabulary import OPEN_VOCABULARY

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    ckpt, data = HERE / "owlv2_dyn.onnx", HERE.parents[1] / "classification/resnet/images/chelsea.jpg"
    more = {"queries": ["a cat", "a cup"], "dim": "queries=4,16,91"}
    cli.single(__doc__, OPEN_VOCABULARY, ckpt=ckpt, data_path=data, batch_size=1, **more)
