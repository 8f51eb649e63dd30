"""What a script defines travels to another process by its name."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support import RunPython

from engine import ConfigError
from utils.pipeline.flags.options import options
from utils.pipeline.launch.serialization import packed, unpacked
from utils.tasks.classification.task import CLASSIFICATION

SCRIPT = """
import subprocess, sys
from dataclasses import replace
from utils.pipeline.launch.serialization import packed
from utils.tasks.classification.task import CLASSIFICATION


class Own:
    @staticmethod
    def decode(outputs, contexts, model, options):
        return "decoded by the script"


if __name__ == "__main__":
    content = packed(replace(CLASSIFICATION, decode=Own.decode))
    code = "import sys; from utils.pipeline.launch.serialization import unpacked; "
    code += "print(unpacked(sys.stdin.buffer.read()).decode(0, 0, 0, 0))"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True)
    print(done.stdout.decode(), done.stderr.decode())
"""


def test_options_and_a_task_are_unpickled() -> None:
    opt = options(None, CLASSIFICATION, "valid", ["--topk", "3"], ckpt=Path("m.onnx"), data_path=Path("d"))
    task, back = unpacked(packed((CLASSIFICATION, opt)))
    assert (task.name, task.base) == (CLASSIFICATION.name, CLASSIFICATION.base)
    assert vars(back) == vars(opt)
    assert type(back) is type(opt)


def test_functions_of_the_script_are_pickled_by_path(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run_python(tmp_path / "script.py", cwd=tmp_path)
    assert done.stdout.split("\n")[0] == "decoded by the script", done.stdout + done.stderr


def test_a_local_function_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"worker.*<lambda>"):
        packed(replace(CLASSIFICATION, check=lambda options: None))


WITH_LAMBDAS = """
import subprocess, sys
from dataclasses import replace
from utils.pipeline.launch.serialization import packed
from utils.tasks.classification.task import CLASSIFICATION

OWN = replace(CLASSIFICATION, metric=lambda *_: "the metric of the script")

if __name__ == "__main__":
    content = packed(replace(OWN, name="other"))
    code = "import sys; from utils.pipeline.launch.serialization import unpacked; "
    code += "print(unpacked(sys.stdin.buffer.read()).metric(0, 0, 0))"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True)
    print(done.stdout.decode(), done.stderr.decode())
"""


def test_lambdas_of_a_task_of_the_script(tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "script.py").write_text(WITH_LAMBDAS)
    done = run_python(tmp_path / "script.py", cwd=tmp_path)
    assert done.stdout.split("\n")[0] == "the metric of the script", done.stdout + done.stderr


MODULE = """
from dataclasses import replace
from utils.tasks.classification.task import CLASSIFICATION

TASK = replace(CLASSIFICATION, show=lambda *_: "shown")
"""


def test_lambdas_of_a_task_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module_of_a_task.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    task = importlib.import_module("module_of_a_task").TASK
    assert unpacked(packed(replace(task, name="other"))).show is task.show
    monkeypatch.delitem(sys.modules, "module_of_a_task")
