"""Evaluate a ResNet on labelled pictures: top-k accuracy and timing."""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from utils.datasets.image_classification_dataset import load_data
from utils.metrics import TopK
from utils.pipeline import cli, evaluate
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.pytorch.classification import preprocess

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the script."""
    opt = cli.options(
        __doc__, ckpt=HERE / "resnet50_dyn.onnx", data_path=HERE / "data/val", batch_size=64, input_size=224
    )
    batches = load_data(opt.data_path, opt.batch_size).batches
    with opt.open() as engine:
        prepare = partial(preprocess, dtype=engine.input_dtype, **opt.shapes(engine.metadata))
        post = np.asarray if opt.skip_postprocess else scores
        report = evaluate(engine, batches, prepare, post, TopK(opt.topk), **cli.limits(opt))
    return cli.finish(report, opt)


if __name__ == "__main__":
    cli.run(main)
