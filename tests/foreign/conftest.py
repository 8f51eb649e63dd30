from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from foreign_models import (
    save_counter,
    save_finder_and_reader,
    save_gru,
    save_images,
    save_policy,
    save_signals,
)
from support import ROOT

TASKS = Path(__file__).with_name("tasks")

SCRIPT = '''"""Run a foreign task."""

import sys
from pathlib import Path

sys.path.insert(0, {root!r})
sys.path.append(str(Path(__file__).resolve().parents[3]))

from utils.pipeline import cli
from utils.tasks.{module} import {task}

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    cli.{script}(__doc__, {task}, ckpt={ckpt}, data_path={data}, batch_size=8)
'''


def contribute(root: Path) -> Path:
    """Put the foreign tasks into a ``contrib/`` below ``root`` and return it."""
    contrib = root / "contrib"
    shutil.copytree(ROOT / "contrib" / "utils", contrib / "utils", ignore=shutil.ignore_patterns("__pycache__"))
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TASKS, contrib / "utils" / "tasks", dirs_exist_ok=True, ignore=ignored)
    return contrib


def write_scripts(folder: Path, module: str, ckpt: str, data: str) -> None:
    folder.mkdir(parents=True)
    names = {"valid": "example_valid.py", "single": "example_single_batch.py", "multi": "example_multi_batch.py"}
    for script, name in names.items():
        words = {"root": str(ROOT), "module": module, "task": module.upper(), "script": script}
        where = f"HERE / {data!r}" if data else "None"
        (folder / name).write_text(SCRIPT.format(**words, ckpt=ckpt, data=where), encoding="utf-8")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a contributed model: two variable-length inputs, dict targets, a ratio as metric, units."""
    root = tmp_path_factory.mktemp("pairs")
    folder = contribute(root) / "example" / "counting" / "pairs"
    write_scripts(folder, "counted_pairs", 'HERE / "counter.onnx"', "pairs.jsonl")
    save_counter(folder / "counter.onnx", wrong=0.12)
    import importlib.util

    spec = importlib.util.spec_from_file_location("counted_pairs_data", TASKS / "counted_pairs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write_data(folder / "pairs.jsonl", count=60)
    return folder


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a contributed model: a streaming GRU, time first, the batch on axis 1."""
    folder = contribute(tmp_path_factory.mktemp("streamed")) / "example" / "streaming" / "gru"
    write_scripts(folder, "streamed", 'HERE / "gru.onnx"', "signals.npz")
    save_signals(folder / "signals.npz", save_gru(folder / "gru.onnx"))
    return folder


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a contributed model without data: seeds of an environment."""
    folder = contribute(tmp_path_factory.mktemp("episodes")) / "example" / "walking" / "half"
    write_scripts(folder, "episodes", 'HERE / "policy.onnx"', "")
    save_policy(folder / "policy.onnx")
    return folder


@pytest.fixture(scope="module")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a contributed model of two files, one of which reads what the other finds."""
    folder = contribute(tmp_path_factory.mktemp("two")) / "example" / "finding" / "shapes"
    ckpt = '{"find": HERE / "find.onnx", "read": HERE / "read.onnx"}'
    write_scripts(folder, "found_and_read", ckpt, "shapes.npz")
    save_finder_and_reader(folder)
    save_images(folder / "shapes.npz")
    return folder
