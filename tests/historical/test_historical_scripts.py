"""Scripts of the previous zoo run unchanged, from ``example/`` and from ``contrib/example/``."""

from __future__ import annotations

import importlib
import re
import shutil
import site
from pathlib import Path

import pytest
from support import RunPython

# What the published guide's scripts do, with every keyword that any of them passes. Nothing here is to be modernised.
SCRIPT = """
import os, sys, time
from pathlib import Path
import numpy as np
{imports}
sys.path.append(str(Path(__file__).resolve().parent.parent.parent.parent))

from engine.tecoinfer_{framework} import TecoInferEngine
from engine.base import PASS_PATH
from utils.datasets.image_classification_dataset import load_data
from utils.preprocess.{framework}.classification import preprocess
from utils.postprocess.{framework}.classification import postprocess

MAX_ENGINE_NUMS = int(os.getenv("MAX_ENGINE_NUMS", 4))
max_step = int(os.environ.get("TECO_INFER_PIPELINES_MAX_STEPS", -1))

{accuracy}

if __name__ == "__main__":
    ckpt, data_path, target = sys.argv[1:4]
    batch_size, shape = 64, 32
    input_size = [[max(batch_size // MAX_ENGINE_NUMS, 1), 3, shape, shape]]
    infer_engine = TecoInferEngine(ckpt=ckpt,
                                   input_name="vgg16",
                                   target=target,
                                   batch_size=batch_size,
                                   input_size=input_size,
                                   dtype="float16",
                                   pass_path=PASS_PATH / "default_pass.py",
                                   backend="tvm",
                                   rank=0,
                                   save_engine=False,
                                   task="classification",
                                   model=None,
                                   model_name="vgg16",
                                   {face}
                                   card_bs1=False)
    val_loader = load_data(data_path, batch_size, rank=-1)
    e2e_time, pre_time, run_time, post_time, ips = [], [], [], [], []
    correct = total = 0
    for index, (input, target_) in enumerate(val_loader):
        start_time = time.time()
        images = preprocess(input, dtype="float16", resize_shape=shape, crop_shape=shape)
        preprocess_time = time.time() - start_time
        prec = infer_engine(images)
        model_time = infer_engine.run_time
        assert isinstance(prec, np.ndarray), type(prec)
        assert 0 < model_time < 60
        correct += accuracy(prec, target_)
        total += len(target_)
        result = postprocess(prec[:1], target=target, topk=2)
        assert set(result[0]) == {{"score", "label"}} and len(result) == 2
        infer_time = time.time() - start_time
        e2e_time.append(infer_time)
        pre_time.append(preprocess_time)
        run_time.append(infer_engine.run_time)
        post_time.append(infer_time - preprocess_time - model_time)
        ips.append(batch_size / infer_time)
        if max_step > 0 and index >= max_step:
            break
    print("backend", infer_engine.backend)
    if "sdaa" in target:
        infer_engine.release()
    infer_engine.release()
    print("eval_metric", correct / total)
    print(f"summary: avg_sps: {{np.mean(ips)}}, e2e_time: {{sum(e2e_time)}}, avg_inference_time: "
          f"{{np.mean(run_time)}}, avg_preprocess_time: {{np.mean(pre_time)}}, avg_postprocess: {{np.mean(post_time)}}")
"""

NUMPY = """
def accuracy(prec, target):
    return int((prec.argmax(axis=1) == np.array(target)).sum())
"""

TORCH = """
def accuracy(output, target):
    with torch.no_grad():
        output = torch.from_numpy(output).float()
        batch_size = target.size(0)
        assert batch_size == len(output)
        _, pred = output.topk(1, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        return correct[0].float().sum(0).item()
"""

FACES = {"pytorch": "devide=True, divided=True,", "paddle": "half=True, devide=True, divided=True,"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the zoo, with a contributor's preprocessing in contrib/utils."""
    from support import ROOT

    copy = tmp_path_factory.mktemp("zoo")
    for folder in ("engine", "tecoinfer_modelzoo", "utils", "contrib/engine", "contrib/utils"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    extra = copy / "contrib" / "utils" / "preprocess" / "pytorch"
    (extra / "mine.py").write_text("from utils.preprocess.pytorch.classification import preprocess\n")
    return copy


def nothing_installed() -> tuple[list[object], list[Path]]:
    """Return options and path of an interpreter that has this one's packages and no installed zoo.

    ``-S`` reads no ``.pth`` file, which an editable install is.
    """
    places = [Path(place) for place in site.getsitepackages()]
    if any((place / "engine").is_dir() for place in places):
        pytest.skip("the zoo is installed here as a copy, which cannot be left out")
    return ["-S"], places


def write(folder: Path, framework: str, *, torch: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"example_valid_{framework}_{torch}.py"
    parts = {"imports": "import torch\n" if torch else "", "accuracy": TORCH if torch else NUMPY}
    path.write_text(SCRIPT.format(framework=framework, face=FACES[framework], **parts))
    return path


def check(
    run_python: RunPython, copy: Path, place: str, digits: Path, framework: str, target: str, *, torch: bool = False
) -> str:
    """Run the script and return the metric it prints."""
    script = write(copy / place / "classification" / "old", framework, torch=torch)
    options, packages = nothing_installed()
    done = run_python(
        *(*options, script, digits / "digits_dyn.onnx", digits / "data" / "val", target),
        cwd=script.parent,
        path=packages,
    )
    assert done.returncode == 0, done.stderr
    assert "input_name vgg16 is not the model's; its only input 'input' is used" in done.stderr
    backend, metric, summary = done.stdout.splitlines()
    assert backend == "backend " + {"onnx": "onnxruntime", "sdaa": "tvm"}[target]
    assert summary.startswith("summary: avg_sps: ")
    return re.fullmatch(r"eval_metric (0\.9[89][0-9]*)", metric).group(1)


@pytest.mark.parametrize(
    ("framework", "place"),
    [
        pytest.param("pytorch", "contrib/example", marks=pytest.mark.slow),
        pytest.param("pytorch", "example", marks=pytest.mark.slow),
        pytest.param("paddle", "example", marks=pytest.mark.slow),
        pytest.param("paddle", "contrib/example", marks=pytest.mark.slow),
    ],
)
def test_a_historical_script(place: str, framework: str, copy: Path, digits: Path, run_python: RunPython) -> None:
    metrics = {check(run_python, copy, place, digits, framework, target) for target in ("onnx", "sdaa")}
    assert len(metrics) == 1


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("place", [pytest.param("example", marks=pytest.mark.long), "contrib/example"])
def test_a_historical_script_that_uses_torch(place: str, copy: Path, digits: Path, run_python: RunPython) -> None:
    pytest.importorskip("torch")
    check(run_python, copy, place, digits, "pytorch", "sdaa", torch=True)


def test_contributed_utilities_come_after_the_core(copy: Path, run_python: RunPython) -> None:
    code = (
        "import sys; sys.path.append(sys.argv[1])\n"
        "import utils.preprocess.pytorch.mine as mine, utils.preprocess.pytorch.classification as core, utils\n"
        "print(mine.preprocess is core.preprocess, mine.__file__, core.__file__)"
    )
    done = run_python("-c", code, copy / "contrib", cwd=copy.parent, path=[copy])
    assert done.stderr == ""
    same, mine, core = done.stdout.split()
    assert same == "True"
    assert Path(mine).is_relative_to(copy / "contrib")
    assert Path(core).is_relative_to(copy / "utils")


PATHS = {
    "engine.base": "PASS_PATH ConfigError Engine EngineSpec TensorSpec engine_nums",
    "engine.tecoinfer_pytorch": "TecoInferEngine",
    "engine.tecoinfer_paddle": "TecoInferEngine",
    "utils.datasets.image_classification_dataset": "load_data",
    "utils.preprocess.pytorch.classification": "preprocess",
    "utils.preprocess.paddle.classification": "preprocess",
    "utils.postprocess.pytorch.classification": "postprocess",
    "utils.postprocess.paddle.classification": "postprocess",
    "utils.preprocess.pytorch.groundingdinot": "preprocess",
    "utils.postprocess.pytorch.groundingdinot": "PostProcessCocoGrounding CocoGroundingEvaluator get_tokenlizer",
    "utils.datasets.groundingdinot_dataset": "CocoDetection collate_fn",
    "utils.pipeline": "evaluate predict",
}
"""Imports of existing scripts, which must stay valid."""


@pytest.mark.parametrize("module", PATHS)
def test_import_paths_of_scripts_are_valid(module: str) -> None:
    found = importlib.import_module(module)
    assert [name for name in PATHS[module].split() if not hasattr(found, name)] == []
