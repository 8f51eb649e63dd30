"""A script with all uses of the engine in detectors' scripts, from both places, without an installed zoo."""

from __future__ import annotations

import shutil
import site
from pathlib import Path

import pytest
from support import ROOT, RunPython, SaveOnnx

# In the manner of the scripts people have: nothing here is to be modernised.
SCRIPT = """
import os
import sys
import time
import numpy as np
{imports}
from pathlib import Path
sys.path.append(str(Path(__file__).resolve().parents[3]))
from engine.tecoinfer_{framework} import TecoInferEngine
from engine.base import PASS_PATH

MAX_ENGINE_NUMS = int(os.getenv("MAX_ENGINE_NUMS", 4))

if __name__ == "__main__":
    ckpt, target, batch_size = sys.argv[1], sys.argv[2], 8
    bs = max(batch_size // MAX_ENGINE_NUMS, 1)
    {opened}
    if target == "sdaa":
        pipeline.init_module(0)
        pipeline.module.start_timing()
    run_time = []
    for step in range(3):
        images = {tensor}(np.full((batch_size, 3, 8, 8), step, np.float32))
        text = {tensor}(np.arange(batch_size * 5).reshape(batch_size, 5))
        boxes, scores = pipeline([images, text], None, image_size=8)
        run_time.append(pipeline.run_time)
        assert isinstance(boxes, np.ndarray) and boxes.shape == (batch_size, 5), boxes.shape
        assert np.allclose(boxes, step + np.arange(batch_size * 5).reshape(batch_size, 5), atol=0.1)
    if target == "sdaa":
        times = pipeline.module.get_infer_time()
        assert len(times) == MAX_ENGINE_NUMS and pipeline.module.simulated
        run_time = [max(times) / 1e3 / 3]
    session = pipeline.session
    names = [i.name for i in session.get_inputs()] if session is not None else pipeline.input_names
    print(names, pipeline.batch_size, pipeline.rank, pipeline.dtype, 0 < np.mean(run_time) < 5)
    pipeline.release()
"""

MODEL = """
g (float[batch,3,8,8] images, int64[batch,5] text) => (float[batch,5] boxes, float[batch,5] scores) {
  m = ReduceMean<axes=[1,2,3], keepdims=1>(images)
  k = Constant<value_ints=[2,3]>()
  s = Squeeze(m, k)
  f = Cast<to=1>(text)
  boxes = Add(f, s)
  scores = Sigmoid(boxes)
}
"""

OPENED = {
    "pytorch": """pipeline = TecoInferEngine(ckpt=ckpt, input_name="input", target=target, batch_size=batch_size,
                               input_size=[[bs, 3, 8, 8], [batch_size, 5]], dtype="float32",
                               pass_path=PASS_PATH / "yolov5m" / "yolov5_pass.py", devide=True, rank=0)""",
    "paddle": """pipeline = TecoInferEngine("detection", None, ckpt, target, "float32", True, False, batch_size,
                               [[bs, 3, 8, 8], [batch_size, 5]], "input", True, 0)""",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("zoo")
    for folder in ("engine", "tecoinfer_modelzoo", "utils", "contrib/engine", "contrib/utils"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize(
    ("framework", "place", "torch"),
    [
        ("pytorch", "example", False),
        pytest.param("paddle", "contrib/example", False, marks=pytest.mark.slow),
        pytest.param("pytorch", "contrib/example", True, marks=[pytest.mark.torch, pytest.mark.slow]),
    ],
)
def test_a_script(
    framework: str, place: str, torch: bool, target: str, copy: Path, save_onnx: SaveOnnx, run_python: RunPython
) -> None:
    if torch:
        pytest.importorskip("torch")
    places = [Path(folder) for folder in site.getsitepackages()]
    if any((folder / "engine").is_dir() for folder in places):
        pytest.skip("the zoo is installed here as a copy, which cannot be left out")
    script = copy / place / "detection" / "old" / f"example_valid_{framework}.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    parts = {"imports": "import torch", "tensor": "torch.from_numpy"} if torch else {"imports": "", "tensor": ""}
    script.write_text(SCRIPT.format(framework=framework, opened=OPENED[framework], **parts))
    done = run_python("-S", script, save_onnx(MODEL), target, cwd=script.parent, path=places)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['images', 'text'] 8 0 float32 True\n"
    assert "input_name input is not used: it does not name the model's inputs" in done.stderr
    assert "input_size 8x5 has the batch of the whole card" in done.stderr
