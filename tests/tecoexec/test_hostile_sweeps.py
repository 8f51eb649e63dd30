"""Hostile sweep configurations are rejected with a one-line error that contains file, case and key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine import ConfigError
from tecoexec.config import load_cases, load_published

CASE: dict[str, Any] = {
    "case_name": "digits",
    "onnx_path": "example/classification/digits/digits_dyn.onnx",
    "input_shapes": [[1, 3, 32, 32]],
    "batch_size": [4],
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"case_name": "n" * 5000}, "case_name 'nnn.* at most 100"),
        ({"case_name": "a\nb"}, r"case_name 'a\\nb'.* one line"),
        ({"model_name": "n" * 101}, "model_name 'nnn.* at most 100"),
        ({"onnx_path": "../x.onnx"}, r"onnx_path '\.\./x.onnx' leaves the repository"),
        ({"onnx_path": "n" * 5000}, "onnx_path 'nnn.* path"),
        ({"onnx_path": "a\0b"}, "onnx_path 'a.*b'.* path"),
        ({"benchmark": "example/../../x.csv"}, "benchmark .* leaves the repository"),
        ({"batch_size": [10**90]}, "batch_size 10*.* at most 2147483647"),
        ({"iterations": 2**31}, "iterations 2147483648 .*at most"),
        ({"history_latency": [10**90]}, None),
        ({"input_shapes": {"a": [[[[1] * 99] * 9] * 9]}}, "input_shapes {'a'.* must be a list"),
        ({"k" * 5000: 1}, "'kkk.* is not a field"),
        ({"case_name": [["a"] * 99] * 9}, "case_name .* must be text"),
    ],
)
def test_hostile_values_raise_a_short_line(change: dict[str, Any], reason: str | None, tmp_path: Path) -> None:
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump([{**CASE, **change}]))
    if reason is None:
        assert len(load_cases(path)) == 1
        return
    with pytest.raises(ConfigError, match=reason) as caught:
        load_cases(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700
    assert str(path) in str(caught.value)


def test_pass_files_must_be_in_the_repository_or_next_to_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "configs"
    folder.mkdir()
    outside = tmp_path.parent / f"{tmp_path.name}_outside.py"
    outside.write_text("")
    (folder / "beside.py").write_text("")
    (folder / "link.py").symlink_to(outside)
    path = folder / "sweep.yaml"
    for name in ("beside", "resnet/resnet_pass.py"):
        path.write_text(yaml.safe_dump([{**CASE, "pass_path": name}]))
        assert load_cases(path)[0].pass_path is not None
    for name in (str(outside), f"../../{outside.name}", "link.py"):
        path.write_text(yaml.safe_dump([{**CASE, "pass_path": name}]))
        with pytest.raises(ConfigError, match=r"case digits: pass_path .*repository"):
            load_cases(path)
    outside.unlink()


@pytest.mark.parametrize("text", ["batch,latency_ms,throughput\n1,nan,5\n", "batch,latency_ms,throughput\n1,2,-5\n"])
def test_published_results_are_positive_numbers(text: str, tmp_path: Path) -> None:
    (tmp_path / "figures.csv").write_text(text)
    with pytest.raises(ConfigError, match=r"figures\.csv .*'(nan|-5)'.* positive"):
        load_published(tmp_path / "figures.csv")


def test_published_results_are_in_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wide.csv").write_text("batch,latency_ms,throughput\n1,2," + "5" * 200_000)
    for name in ("pipe", "wide.csv"):
        with pytest.raises(ConfigError, match=f"{name} cannot be read"):
            load_published(tmp_path / name)
