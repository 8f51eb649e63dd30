"""``docs/reference/tasks.md``, and the smallest task of adding_a_domain.md: tasks and scripts run as the pages say."""

from __future__ import annotations

import importlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from support import ROOT, RunPython

from tecoinfer_modelzoo import evaluate
from utils.tasks import Task
from utils.tasks.legacy import ATTRIBUTES, METHODS

PAGE = (ROOT / "docs" / "reference" / "tasks.md").read_text(encoding="utf-8")
DOMAIN = (ROOT / "docs" / "how-to" / "adding_a_domain.md").read_text(encoding="utf-8")
SMALLEST = DOMAIN.split("\n## The smallest task\n")[1].split("\n## ")[0]
NAMES = ("simplest", "simplest_valid", "task", "valid", "variant")
BLOCKS = dict(zip(NAMES, re.findall(r"```python\n(.*?)```", SMALLEST + PAGE, re.DOTALL), strict=True))
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
    (root / "contrib" / "utils" / "tasks" / "sums.py").write_text(f"{BLOCKS['task']}\n\n{BLOCKS['variant']}")
    model = root / "contrib" / "example" / "arithmetic" / "sums"
    model.mkdir(parents=True)
    (model / "example_valid.py").write_text(BLOCKS["valid"])
    (model / "example_multi_batch.py").write_text(BLOCKS["valid"].replace("cli.valid", "cli.multi"))
    (model / "variant.py").write_text(re.sub(r"\bSums\b", "DoubledSums", BLOCKS["valid"]))
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


def test_a_variant_overrides_a_method(folder: Path, run_python: RunPython) -> None:
    done = run_python("variant.py", "--target", "onnx", cwd=folder)
    assert done.returncode == 0, done.stderr
    metric = float(re.findall(r"^eval_metric (\S+)$", done.stdout, re.MULTILINE)[0])
    assert 1.008 < metric < 1.032  # twice the sum: off by 100 %, and by what the table is off, twice


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the simplest task, its script, a model that adds 1 too much, and data."""
    folder = tmp_path_factory.mktemp("rows")
    (folder / "rows.py").write_text(BLOCKS["simplest"])
    (folder / "valid.py").write_text(BLOCKS["simplest_valid"])
    text = (
        '<ir_version: 8, opset_import: ["" : 17]> rows (float[batch,3] x) => (float[batch,1] y) { y = Gemm(x, w, b) }'
    )
    model = onnx.parser.parse_model(text)
    weights = {"w": np.ones((3, 1), np.float32), "b": np.ones(1, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    onnx.save(model, str(folder / "rows.onnx"))
    samples = np.arange(60.0).reshape(20, 3)
    np.savez(folder / "rows.npz", samples=samples, targets=samples.sum(axis=1))
    return folder


def test_the_simplest_task_has_at_most_30_lines() -> None:
    assert len(BLOCKS["simplest"].splitlines()) <= 30


def test_the_simplest_task_runs_as_a_script(rows: Path, run_python: RunPython) -> None:
    done = run_python("valid.py", "--target", "onnx", cwd=rows)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^eval_metric (\S+)$", done.stdout, re.MULTILINE) == ["1.0"]


def test_the_simplest_task_runs_from_python(rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(rows)
    monkeypatch.syspath_prepend(rows)
    call = re.search(r"`(evaluate\(Rows, [^`]+)`", SMALLEST)
    assert call is not None
    assert eval(call[1], {"evaluate": evaluate, "Rows": importlib.import_module("rows").Rows}) == 1.0  # noqa: S307


def test_the_table_of_names_is_that_of_the_code() -> None:
    section = PAGE.split("## Deprecated form of tasks")[1].split("\n## ")[0]
    methods = {old: new for old, (new, _) in METHODS.items()}
    changed = {old: new for old, new in {**ATTRIBUTES, **methods}.items() if old != new}
    assert dict(re.findall(r"^\| `(\w+)` \| `(\w+)` \|$", section, re.MULTILINE)) == changed


def test_the_table_of_concerns_is_that_of_the_contract() -> None:
    section = PAGE.split("## One object per run")[1].split("\n## ")[0]
    said = re.findall(r"`(\w+)`", "".join(line.split("|")[2] for line in section.splitlines() if line[:1] == "|"))
    own = {"bind", "one_call", "has_reference", "source", "sources", "options", "model", "state"}
    names = {name for cls in Task.__mro__[:-2] for name in (*vars(cls), *vars(cls).get("__annotations__", ()))}
    assert sorted(said) == sorted(name for name in names - own if name[0] != "_")
