"""Evaluate OWLv2 on images with boxes, looking for the data set's classes: mAP and timing."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.open_vocabulary import OpenVocabulary

IMAGES = "../../classification/resnet/images"

if __name__ == "__main__":
    cli.valid(OpenVocabulary, ckpt="owlv2_dyn.onnx", data_path=IMAGES, batch_size=8, dim="queries=4,16,91")
