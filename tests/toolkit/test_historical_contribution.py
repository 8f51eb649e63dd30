"""A contributed model with scripts in the style of the published guide passes the check."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import RunPython
from zoo_copy import copy_zoo

from model_config.cases.config import read_cases
from model_config.structure import check_structure
from toolkit.scaffold import create

EXPORT = """\
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(0)
shapes = {"kernel": (4, 3, 3, 3), "weight": (3, 4), "bias": (3,)}
weights = [numpy_helper.from_array(rng.normal(size=s).astype("float32"), name) for name, s in shapes.items()]
nodes = [
    helper.make_node("Conv", ["input", "kernel"], ["a"], strides=[2, 2]),
    helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("GlobalAveragePool", ["b"], ["c"]),
    helper.make_node("Flatten", ["c"], ["d"]),
    helper.make_node("Gemm", ["d", "weight", "bias"], ["output"], transB=1),
]
value = helper.make_tensor_value_info
inputs = [value("input", TensorProto.FLOAT, ["batch", 3, 32, 32])]
outputs = [value("output", TensorProto.FLOAT, ["batch", 3])]
graph = helper.make_graph(nodes, "old_net", inputs, outputs, weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.save(model, "old_net_float16_dyn.onnx")
print("exported")
"""

HEAD = """\
import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

# 添加engine和utils路径
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))

from engine.base import PASS_PATH
from engine.tecoinfer_pytorch import TecoInferEngine
from utils.datasets.image_classification_dataset import load_data
from utils.postprocess.pytorch.classification import postprocess
from utils.preprocess.pytorch.old_net import preprocess

MAX_ENGINE_NUMS = int(os.getenv("MAX_ENGINE_NUMS", 4))


def parse_opt():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ckpt", type=str, default="old_net_float16_dyn.onnx")
    parser.add_argument("--data_path", type=str, default="images")
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--target", default="sdaa")
    parser.add_argument("--dtype", type=str, default="float16")
    parser.add_argument("--topk", type=int, default=1)
    parser.add_argument("--weights", type=str, default="")
    return parser.parse_args()


def pipeline_of(opt):
    input_size = [[max(opt.batch_size // MAX_ENGINE_NUMS, 1), 3, 32, 32]]
    return TecoInferEngine(ckpt=opt.ckpt,
                           input_name="input",
                           target=opt.target,
                           batch_size=opt.batch_size,
                           input_size=input_size,
                           dtype=opt.dtype,
                           pass_path=PASS_PATH / "default_pass.py")

"""

VALID = (
    HEAD
    + """
if __name__ == "__main__":
    opt = parse_opt()
    pipeline = pipeline_of(opt)
    val_loader = load_data(opt.data_path, opt.batch_size)
    e2e_time, pre_time, run_time, post_time, ips = [], [], [], [], []
    right = total = 0
    for index, (input, target) in enumerate(val_loader):
        start_time = time.time()
        images = preprocess(input, dtype=opt.dtype)
        preprocess_time = time.time() - start_time
        prec = pipeline(images)
        model_time = pipeline.run_time
        right += int((prec.argmax(axis=1) == np.array(target)).sum())
        total += len(target)
        infer_time = time.time() - start_time
        e2e_time.append(infer_time)
        pre_time.append(preprocess_time)
        run_time.append(model_time)
        post_time.append(infer_time - preprocess_time - model_time)
        ips.append(opt.batch_size / infer_time)
    if "sdaa" in opt.target:
        pipeline.release()
    print('eval_metric', right / total)
    print(f'summary: avg_sps: {np.mean(ips)}, e2e_time: {sum(e2e_time)}, avg_inference_time: {np.mean(run_time)}, avg_preprocess_time: {np.mean(pre_time)}, avg_postprocess: {np.mean(post_time)}')
"""  # noqa: E501 -- as the guide has it
)

SINGLE = (
    HEAD
    + """
if __name__ == "__main__":
    opt = parse_opt()
    pipeline = pipeline_of(opt)
    result = postprocess(pipeline(preprocess(opt.data_path, dtype=opt.dtype)), target=opt.target, topk=opt.topk)
    print(f"{opt.data_path}: {result}")
    pipeline.release()
"""
)

MULTI = (
    HEAD
    + """
if __name__ == "__main__":
    opt = parse_opt()
    pipeline = pipeline_of(opt)
    for file_name in sorted(os.listdir(opt.data_path)):
        if file_name.endswith(".png"):
            file_path = os.path.join(opt.data_path, file_name)
            result = postprocess(pipeline(preprocess(file_path, dtype=opt.dtype)), target=opt.target, topk=opt.topk)
            print(f"{file_path}: {result}")
    pipeline.release()
"""
)

PREPROCESS = """\
from utils.preprocess.pytorch.classification import preprocess as classification


def preprocess(images, dtype="float16"):
    return classification(images, dtype=dtype, resize_shape=32, crop_shape=32)
"""

SCRIPTS = {
    "export_onnx.py": EXPORT,
    "example_valid.py": VALID,
    "example_single_batch.py": SINGLE,
    "example_multi_batch.py": MULTI,
}


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Return a zoo with a contribution that follows the guide."""
    zoo = copy_zoo(tmp_path / "zoo")
    folder = zoo / create("classification", "old_net", contrib=True, root=zoo).folder
    (folder / "model.py").unlink()
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (zoo / "contrib/utils/preprocess/pytorch/old_net.py").write_text(PREPROCESS, encoding="utf-8")
    return zoo


@pytest.mark.long
@pytest.mark.slow
def test_check_accepts_historical_contribution(zoo: Path, run_python: RunPython) -> None:
    config = zoo / "contrib/model_config/model.yaml"
    (case,) = read_cases([config], zoo)[0]
    assert check_structure(case, zoo) == []
    done = run_python("-m", "model_config.check", "--config", config, cwd=zoo, path=[zoo])
    assert done.returncode == 4, done.stdout + done.stderr  # it writes no records by which the gate could decide
    assert "no per-sample records to judge by" in done.stdout
    assert "FAIL" not in done.stdout
    done = run_python("-m", "toolkit.cli", "run", "old_net", "export", cwd=zoo, path=[zoo])
    assert done.stdout == "exported\n"
    done = run_python("-m", "toolkit.cli", "run", "old_net", "multi", "--target", "onnx", cwd=zoo, path=[zoo])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
