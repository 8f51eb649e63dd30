"""Find what texts name in one picture with OWLv2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.open_vocabulary import OpenVocabulary

if __name__ == "__main__":
    more = {"queries": ["a cat", "a cup"], "dim": "queries=4,16,91"}
    cli.single(
        OpenVocabulary, ckpt="owlv2_dyn.onnx", data_path="../../classification/resnet/images/chelsea.jpg", **more
    )
