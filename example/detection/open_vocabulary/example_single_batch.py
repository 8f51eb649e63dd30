"""Find objects by texts in one image with OWLv2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.open_vocabulary import OpenVocabulary

IMAGE = "../../classification/resnet/images/chelsea.jpg"
QUERIES = {"queries": ["a cat", "a cup"], "dim": "queries=4,16,91"}

if __name__ == "__main__":
    cli.single(OpenVocabulary, ckpt="owlv2_dyn.onnx", data_path=IMAGE, **QUERIES)
