"""``docs/tasks.md``: its task and its scripts are written to a contrib folder and run as the page says."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import ROOT, RunPython

PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
BLOCKS = dict(zip(("task", "valid"), re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True))
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def write_model(path: Path) -> None:
    """Sum up to 100 times a number, by a table that is a little off."""
    table = np.arange(100, dtype=np.float32)[:, None] * np.float32(1.01)
    nodes = [
        helper.make_node("Gather", ["table", "numbers"], ["values"], name="look_up"),
        helper.make_node("ReduceSum", ["values", "axis"], ["sum"], name="sum", keepdims=0),
    ]
    numbers = helper.make_tensor_value_info("numbers", TensorProto.INT64, ["batch", "length"])
    total = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["batch", 1])
    constants = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(np.array([1], np.int64), "axis")]
    graph = helper.make_graph(nodes, "sums", [numbers], [total], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "contrib" / "utils", root / "contrib" / "utils")
    (root / "contrib" / "utils" / "tasks" / "sums.py").write_text(BLOCKS["task"])
    model = root / "contrib" / "example" / "arithmetic" / "sums"
    model.mkdir(parents=True)
    (model / "example_valid.py").write_text(BLOCKS["valid"])
    (model / "example_multi_batch.py").write_text(BLOCKS["valid"].replace("cli.valid", "cli.multi"))
    write_model(model / "sums.onnx")
    random = np.random.default_rng(0)
    rows = [random.integers(1, 100, random.integers(1, 9)).tolist() for _ in range(40)]
    lines = [json.dumps({"numbers": row, "sum": sum(row), "person": f"p{i % 5}"}) for i, row in enumerate(rows)]
    (model / "sums.jsonl").write_text("\n".join(lines))
    return model


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_work(folder: Path, run_python: RunPython, command: str) -> None:
    program, *words = command.split()
    assert program == "python"
    done = run_python(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    if "valid" in command:
        metric = float(re.findall(r"^eval_metric (\S+)$", done.stdout, re.MULTILINE)[0])
        assert 0.008 < metric < 0.012
    else:
        assert "40 samples in" in done.stdout
    if "--json" in command:
        found = json.loads((folder / "result.json").read_text())
        assert (found["task"], found["metric_name"], found["higher_is_better"]) == ("sums", "share_off", False)
        assert found["records"] == "result.samples.npz"
        assert (folder / found["records"]).is_file()
