"""Weights that are too large for git: the question, its answer by --weights_url, and the export script's download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from fetch_archives import serving
from onnx import helper, numpy_helper

from engine import ConfigError
from toolkit.adapt.cli import _left_to_do
from toolkit.adapt.folder import write_folder
from toolkit.adapt.readme import questions
from toolkit.adapt.sources import find_source
from toolkit.adapt.sources.base import MOST_COMMITTED, run_script
from toolkit.adapt.stages.export import SCRIPT, staged
from toolkit.adapt.work import Record, Request, Work

KNOWN = {"publisher": "the zoo's tests", "licence": "Apache-2.0", "random": False}


def written(file: Path, rows: int) -> Path:
    """Write a network of one product with rows x 300 weights."""
    weight = np.random.default_rng(0).normal(0, 1, (rows, 300)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, 1, ["N", size]) for name, size in (("x", rows), ("y", 300))]
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


def work_on(file: Path, **request: Any) -> Work:
    records: dict[str, dict[str, Any]] = {"take_in": KNOWN, "data": {"real": False}, "task": {"domain": "arrays"}}
    kept = {name: Record("", "", "done", 0.0, facts) for name, facts in records.items()}
    return Work(Request(model=str(file), name="large", root=file.parent, **request), file.parent / "work", kept)


def test_a_large_file_leaves_one_question_which_a_flag_answers(tmp_path: Path) -> None:
    file = written(tmp_path / "given.onnx", 2000)
    assert file.stat().st_size > MOST_COMMITTED
    work = work_on(file)
    found = questions(work, find_source(str(file)).export(work))
    assert found == [
        "Where are the weights `large_source.onnx` downloaded? 2.4 MB are too large for git. (`--weights_url URL`)"
    ]
    reasons = ["example/arrays/large/README.md:20: readme-open: ..."]
    assert _left_to_do(found, reasons) == "left to do: the same command with --weights_url URL, and the check passes"
    assert _left_to_do(found, [*reasons, "valid: exit code 2"]).endswith("URL; 1 other finding of the check")
    answered = work_on(file, weights_url="https://example.org/given.onnx")
    assert questions(answered, find_source(str(file)).export(answered)) == []


def test_a_url_for_weights_in_git_is_refused(tmp_path: Path) -> None:
    work = work_on(written(tmp_path / "given.onnx", 20), weights_url="https://example.org/given.onnx")
    with pytest.raises(ConfigError, match=r"--weights_url https://.*: no weights are too large for git; leave it out"):
        write_folder(work)


@pytest.mark.slow
@pytest.mark.long
def test_the_export_script_downloads_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    file = written(tmp_path / "given.onnx", 2000)
    with serving(tmp_path) as server:
        work = work_on(file, weights_url=f"{server.url}/given.onnx")
        script = staged(find_source(str(file)).export(work), tmp_path / "folder")
        (script.parent / "large_source.onnx").unlink()
        code, lines, error = run_script(script, ["--forms", "static"], tmp_path)
        assert (code, error) == (0, ""), lines
        assert server.asked == ["/given.onnx"]
    assert (script.parent / "large_source.onnx").read_bytes() == file.read_bytes()
    (script.parent / "large_source.onnx").unlink()
    assert run_script(script, ["--forms", "static"], tmp_path)[0] == 0  # of the cache
    (script.parent / "large_source.onnx").unlink()
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "empty"))
    code, _, error = run_script(script, ["--forms", "static"], tmp_path)
    assert code == 2
    assert "large_source.onnx is missing and cannot be downloaded" in error
    assert script.name == SCRIPT


def test_data_too_large_for_git_need_a_link(tmp_path: Path) -> None:
    file = written(tmp_path / "given.onnx", 20)
    work = work_on(file)
    facts = {"real": True, "copied": 0, "place": "/data/val.npz"}
    for source, count in (("", 1), ("measured by us, CC0", 1), ("https://example.org/val.npz, CC0", 0)):
        work.records["data"].facts = {**facts, "licence": source}
        found = questions(work, find_source(str(file)).export(work))
        assert len(found) == count
        assert all("--data_source TEXT" in one for one in found)
