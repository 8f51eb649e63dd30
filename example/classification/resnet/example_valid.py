"""Evaluate a ResNet on labelled pictures: top-k accuracy and timing."""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from engine import Engine
from utils.datasets.image_classification_dataset import load_data
from utils.metrics import TopK
from utils.pipeline import cli, evaluate
from utils.pipeline.report import Report
from utils.postprocess.pytorch.classification import scores
from utils.preprocess.pytorch.classification import preprocess

HERE = Path(__file__).resolve().parent


def run(opt: cli.Options, engine: Engine) -> Report:
    """Evaluate the data set."""
    batches = load_data(opt.data_path, opt.batch_size).batches
    prepare = partial(preprocess, dtype=engine.input_dtype, **opt.preprocess(engine.metadata))
    post = np.asarray if opt.skip_postprocess else scores
    metric = TopK(opt.topk)
    with cli.kept(opt, engine, batches, metric) as keep:
        return evaluate(engine, batches, prepare, post, metric, **keep, **cli.limits(opt))


if __name__ == "__main__":
    ckpt, data = HERE / "resnet50_dyn.onnx", HERE / "data/val"
    cli.valid(__doc__, run, ckpt=ckpt, data_path=data, batch_size=64, input_size=224)
