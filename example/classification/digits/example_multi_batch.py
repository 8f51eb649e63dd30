"""Read every picture of a folder with the digits ResNet."""

import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from utils.datasets import load_dataset
from utils.pipeline import cli, predict
from utils.postprocess.pytorch.classification import answers
from utils.preprocess.pytorch.classification import preprocess

HERE = Path(__file__).resolve().parent


def main() -> int:
    """Run the script."""
    opt = cli.options(
        __doc__, ckpt=HERE / "digits_dyn.onnx", data_path=HERE / "data/val/7", batch_size=16, input_size=32
    )
    batches = load_dataset(opt.data_path).batches(opt.batch_size)
    with opt.open() as engine:
        prepare = partial(preprocess, dtype=engine.input_dtype, **opt.shapes(engine.metadata))
        post = cli.raw_answers if opt.skip_postprocess else partial(answers, topk=opt.topk, labels=engine.metadata)
        failures = []
        return cli.show(predict(engine, batches, prepare, post, failures=failures, **cli.pace(opt)), opt, failures)


if __name__ == "__main__":
    cli.run(main)
