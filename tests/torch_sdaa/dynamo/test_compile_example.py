"""``example/training/compile/main.py``: errors, and reopening the files of an earlier run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT

torch = pytest.importorskip("torch")

import torch_sdaa  # noqa: E402
from engine import ConfigError, DataError, open_engine  # noqa: E402
from torch_sdaa import dynamo  # noqa: E402

_INSTALLED = all(importlib.util.find_spec(name) for name in ("torchvision", "transformers"))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(not _INSTALLED, reason="torchvision or transformers is not installed"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("compile_main", ROOT / "example" / "training" / "compile" / "main.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--chip t9", "invalid choice: 't9'"),
        ("--chip", "expected one argument"),
        ("--model resnet18", "invalid choice: 'resnet18'"),
        ("--size 5", "--size 5: resnet50 takes 33 to 1024"),
        ("--model bert-large --size 513", "--size 513: bert-large takes 1 to 512"),
        ("--layers 0", "--layers 0: bert-large has 1 to 24"),
        ("--seed -1", r"--seed -1: give 0 to 2\*\*63 - 1"),
        ("--lay 3", "unrecognized arguments: --lay 3"),
    ],
)
def test_invalid_arguments_are_one_line(script: Any, words: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["main.py", *words.split()])
    with pytest.raises(ConfigError, match=message) as refused:
        script.arguments()
    assert "\n" not in str(refused.value)


def test_artefacts_of_a_run_are_compared_again(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    dynamo.clear()
    out = tmp_path / "kept"
    model = torch.nn.Linear(4, 2).sdaa()
    options = {"keep": str(out), "const_name": True}
    torch.compile(model, backend=torch_sdaa.aot_backend, options=options)(torch.randn(3, 4).sdaa()).sum().backward()
    with pytest.raises(DataError, match=r"stage; .*--reopen"):
        script.reopened(tmp_path)
    with pytest.raises(Exception, match=r"backward_0_0_0_0\.tecoengine .*No such file"):
        script.reopened(out)
    for path in sorted(out.glob("*.onnx")):
        open_engine("sdaa", script.spec_of(path, save_engine=True)).release()
    assert script.reopened(out) == 0
    assert capsys.readouterr().out.count("largest difference 0\n") == 4
    values = dict(np.load(out / "forward_0_0_0_0.npz"))
    for other, message in (
        (values["output_0"] + 1, r"forward_0_0_0_0\.tecoengine on target sdaa is .* away from what the step gave"),
        (values["output_0"] * np.nan, r"forward_0_0_0_0\.tecoengine on target sdaa is nan away"),
        (values["output_0"][:1], r"output 0 is \[3, 2\], and output_0 of forward_0_0_0_0\.npz is \[1, 2\]: run this"),
    ):
        np.savez(out / "forward_0_0_0_0.npz", **{**values, "output_0": other}, allow_pickle=False)
        with pytest.raises(DataError, match=message):
            script.reopened(out)
    np.savez(out / "forward_0_0_0_0.npz", input_0=np.zeros(1), allow_pickle=False)
    with pytest.raises(Exception, match=r"forward_0_0_0_0\.tecoengine: got 1 .*3"):
        script.reopened(out)
    (out / "forward_0_0_0_0.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"\.npz file.*--reopen"):
        script.reopened(out)


def test_an_engine_of_another_version_is_an_error_with_a_fix(script: Any, tmp_path: Path) -> None:
    torch.compiler.reset()
    dynamo.clear()
    options = {"keep": str(tmp_path), "const_name": True, "cache": False}
    torch.compile(lambda v: v.exp() * 2, backend="sdaa", options=options)(torch.ones(3, device="sdaa"))
    (path,) = tmp_path.glob("*.onnx")
    open_engine("sdaa", script.spec_of(path, save_engine=True)).release()
    saved = path.with_suffix(".tecoengine")
    head, _, rest = saved.read_bytes().partition(b"\n")
    word, version, length, _ = head.split()
    manifest = json.loads(rest[: int(length)])
    manifest["origin"]["versions"]["onnxruntime"] = "1.0.0"
    other = json.dumps(manifest).encode() + rest[int(length) :]
    digest = hashlib.sha256(other[: len(json.dumps(manifest))]).hexdigest().encode()
    saved.write_bytes(b" ".join((word, version, str(len(json.dumps(manifest))).encode(), digest)) + b"\n" + other)
    with pytest.raises(DataError, match=r"onnxruntime was 1\.0\.0, now .*--reopen$"):
        script.reopened(tmp_path)
    saved.write_bytes(b" ".join((word, b"9", *head.split()[2:])) + b"\n" + rest)
    with pytest.raises(DataError, match=r"version 9, .*--reopen$"):
        script.reopened(tmp_path)


def test_the_report_is_json_too() -> None:
    torch.compiler.reset()
    dynamo.clear()
    torch.compile(lambda v: v.sort(0)[0].exp(), backend="sdaa", options={"cache": False})(torch.ones(3, device="sdaa"))
    found = json.loads(dynamo.report().to_json())
    assert (found["schema_version"], found["recompilations"], found["graph_breaks"]) == (1, [], [])
    assert found["fallbacks"][0]["op"] == "aten.sort.default"
    (graph,) = found["graphs"]
    assert graph["partitions"][0]["plans"][0]["source"] == "built"
