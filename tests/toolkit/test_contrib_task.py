"""A domain of a contributor's own: contrib/README.md's task with a template, from ``teco new`` to a passed check."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, bash, change
from zoo_copy import copy_zoo, with_teco

from model_config.structure import check_shared

PAGE = (ROOT / "contrib" / "README.md").read_text(encoding="utf-8")
SECTION = PAGE[PAGE.index("## A domain of your own") : PAGE.index("## Scripts you already have")]

SCRIPT = '''\
"""{says} with $model."""

import sys
from pathlib import Path

$paths

from utils.pipeline import cli
from utils.tasks.gauge import GAUGE

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    cli.{call}(__doc__, GAUGE, ckpt=HERE / "${{model}}_dyn.onnx", data_path=HERE / "data/val.csv", batch_size={batch})
'''

EXPORT = '''\
"""Write $model as ONNX: the mean of three readings."""

import sys
from pathlib import Path

import numpy as np
from onnx import parser

$paths
from utils.export.constructed import write_constructed
from utils.export.onnx_files import ModelNotes
from utils.pipeline import cli

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
gauge (float[batch,3] readings) => (float[batch,1] value) { value = ReduceMean<axes = [1]>(readings) }"""


def main() -> int:
    """Write the files."""
    readings = [[np.ones((batch, 3), np.float32)] for batch in (1, 5)]

    def build(dynamic):
        return parser.parse_model(GRAPH if dynamic else GRAPH.replace("batch", "1"))

    notes = ModelNotes(provenance={"source": "$folder", "weights": "constructed"})
    for result in write_constructed(build, readings, Path(__file__).resolve().parent / "$model", notes):
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
'''

STEP = """\
  run_example_{name}:
    run_file: {file}
    params: {{ckpt: "${{model}}_dyn.onnx", batch_size: 16, data_path: data/val.csv, target: sdaa, dtype: float32}}
"""
FILES = {"valid": "example_valid.py", "single": "example_single_batch.py", "multi": "example_multi_batch.py"}
CASE = (
    "- case_name: $model\n  run_dir: $folder\n  run_export: {run_file: export_onnx.py}\n"
    + "".join(STEP.format(name=name, file=file) for name, file in FILES.items())
    + "  accuracy: {accept_inconclusive: 64 rows of a table that nobody measured}\n"
)

README = """\
# $title

## 1. 模型概述

The mean of three readings, a placeholder of task $task.

## 2. 快速开始

### 2.1 基础环境安装

The zoo itself.

### 2.2 安装第三方依赖

None.

### 2.3 获取ONNX文件

```bash
python export_onnx.py
```

### 2.4 获取数据集

Made up.

### 2.5 启动推理

```bash
python example_single_batch.py --target onnx
python example_multi_batch.py --target onnx
```

### 2.6 精度验证

```bash
python example_valid.py --target onnx
```
"""

TEMPLATE = {
    "README.md": README,
    "requirements.txt": "# nothing\n",
    "export_onnx.py": EXPORT,
    "case.yaml": CASE,
    "example_valid.py": SCRIPT.format(says="Evaluate a table", call="valid", batch=64),
    "example_single_batch.py": SCRIPT.format(says="Read one row", call="single", batch=1),
    "example_multi_batch.py": SCRIPT.format(says="Read a table", call="multi", batch=16),
}


def add_task(zoo: Path) -> Path:
    """Do what the page says, with a template of the test's own; return the template's folder."""
    for action in actions(SECTION):
        if action.kind == "file":
            change(action, zoo)
    folder = zoo / "contrib/utils/tasks/templates/gauge"
    folder.mkdir(parents=True)
    for name, text in TEMPLATE.items():
        (folder / f"{name}.tmpl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    return copy_zoo(tmp_path / "zoo")


def teco(zoo: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run teco of a copy in a process of its own, as it puts the copy's contrib on the path."""
    environment = with_teco(zoo, zoo.parent / "bin")
    command = [sys.executable, "-m", "toolkit.cli", *words]
    return subprocess.run(command, cwd=zoo, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_page_leads_to_a_passed_check(zoo: Path) -> None:
    add_task(zoo)
    shared = [path.relative_to(zoo).as_posix() for path in (zoo / "contrib/utils").rglob("*.py")]
    assert check_shared(shared, zoo) == []
    (commands,) = (action.text for action in actions(SECTION) if action.kind == "bash")
    printed = bash(commands, zoo, with_teco(zoo, zoo.parent / "bin"))
    assert "contrib/example/gauges/my_gauge: 7 files; its case 'my_gauge' stands at the end of contrib/model" in printed
    assert "eval_metric" in printed
    assert "PASS: 1 PASS" in printed.splitlines()[-1]
    assert "--num_workers" in teco(zoo, "info", "my_gauge").stdout  # the valid script's flags, by its task
    checked = teco(zoo, "check", "my_gauge", "--update")
    assert checked.returncode == 0, checked.stdout
    assert "(sdaa, lower is better)" in teco(zoo, "list", "my_gauge").stdout


def test_the_task_is_offered_and_only_to_contrib(zoo: Path) -> None:
    add_task(zoo)
    done = teco(zoo, "new", "astronomy", "x", "--contrib")
    assert done.returncode == 2
    assert (
        "no task is for domain 'astronomy'; tasks and their domains: classification (classification), " in done.stderr
    )
    assert "gauge (gauges)" in done.stderr
    assert done.stderr.rstrip().endswith("choose one by --task NAME")
    done = teco(zoo, "new", "gauges", "x")
    assert done.stderr == "error: task 'gauge' is in contrib/utils, which core models do not see; add --contrib\n"
    done = teco(zoo, "new", "astronomy", "x", "--task", "gauge", "--contrib")
    assert done.returncode == 0, done.stderr
    assert (zoo / "contrib/example/astronomy/x/data/val.csv").is_file()
    assert teco(zoo, "_complete", "new", "gau").stdout == "gauges\n"
    assert teco(zoo, "_complete", "new", "gauges", "x", "--task", "g").stdout == "gauge\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("model.py", "$sizes", "model.py.tmpl asks for the word 'sizes', which its fill does not give; words: folder,"),
        ("model.py", "$ 5", "model.py.tmpl: Invalid placeholder in string: line 1, col 1; a dollar sign by itself is"),
        ("case.yaml", None, "templates/gauge of task 'gauge' has no case.yaml.tmpl; add it"),
        ("case.yaml", "- case_name: other\n", "cannot be appended to"),
    ],
)
def test_a_template_that_cannot_be_used_changes_nothing(zoo: Path, name: str, text: str | None, said: str) -> None:
    file = add_task(zoo) / f"{name}.tmpl"
    file.unlink(missing_ok=True)
    if text is not None:
        file.write_text(text)
    config = zoo / "contrib/model_config/model.yaml"
    before = config.read_bytes()
    done = teco(zoo, "new", "gauges", "x", "--contrib")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert said in done.stderr
    assert config.read_bytes() == before
    assert not (zoo / "contrib/example").exists() or not list((zoo / "contrib/example").rglob("x*"))


def test_sample_data_that_cannot_be_made(zoo: Path) -> None:
    add_task(zoo)
    task = zoo / "contrib/utils/tasks/gauge.py"
    task.write_text(task.read_text().replace("chance.uniform(10, 90, 64)", "1 / 0"))
    done = teco(zoo, "new", "gauges", "x", "--contrib")
    assert "templates/gauge cannot be made: ZeroDivisionError: division by zero; correct its fill" in done.stderr
    assert done.stderr.count("\n") == 1
    task.write_text("import nothing_like_it\n")
    done = teco(zoo, "new", "classification", "x", "--contrib")
    assert done.stderr.startswith("error: utils/tasks/gauge.py cannot be imported: ModuleNotFoundError: ")
