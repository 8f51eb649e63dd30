"""Find objects by texts in every image of a folder with OWLv2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.open_vocabulary import OpenVocabulary

IMAGES = "../../classification/resnet/images"

if __name__ == "__main__":
    cli.multi(OpenVocabulary, ckpt="owlv2_dyn.onnx", data_path=IMAGES, batch_size=4, dim="queries=4,16,91")
