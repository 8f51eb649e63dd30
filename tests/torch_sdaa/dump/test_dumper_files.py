"""Damaged dumps, invalid arguments, and nested dumpers."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
h5py = pytest.importorskip("h5py")

import torch_sdaa  # noqa: E402, F401 -- makes the device
from engine import ConfigError, DataError  # noqa: E402
from engine.training import open_training_dump, read_call  # noqa: E402
from torch_sdaa.dump.replay import replayed  # noqa: E402
from torch_sdaa.utils import dumper  # noqa: E402

pytestmark = pytest.mark.torch
CALL = "aten.mm.default/1"


def work(steps: int = 1) -> None:
    weight = torch.nn.Parameter(torch.ones(40, 40, device="sdaa"))
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(steps):
        (weight @ weight).sum().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "a.h5"
    with dumper(use_dump=True, dump_path=path):
        work()
    return path


def _said(file: Any, **fields: Any) -> None:
    call = json.loads(bytes(file[CALL]["call"][()])) | fields
    del file[CALL]["call"]
    file[CALL]["call"] = np.frombuffer(json.dumps(call).encode(), np.uint8)


def _version(file: Any, version: Any) -> None:
    del file["about"]
    file["about"] = np.frombuffer(json.dumps({"schema_version": version}).encode(), np.uint8)


def _array(file: Any, name: str, array: Any) -> None:
    del file[CALL][name]
    if array is not None:
        file[CALL][name] = array


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: _said(file, step="x"), "mm.default/1 is not a complete call"),
        (lambda file: _said(file, args=None), "mm.default/1 is not a complete call"),
        (lambda file: _said(file, written=[7]), r"wrote into inputs \[7\] of 2"),
        (lambda file: _said(file, number=0), "its name is aten.mm.default/0"),
        (lambda file: _said(file, more=1), "mm.default/1 is not a complete call"),
        (lambda file: _array(file, "output/0", None), "mm.default/1 is not a complete call"),
        (lambda file: _array(file, "output/0", np.zeros((2, 2), np.float32)), r"output/0 is \[2, 2\], not \[40, 40\]"),
        (lambda file: _array(file, "output/0", np.zeros((40, 40), np.float32)), "has other values than were written"),
        (lambda file: _version(file, 2), "is a dump of version 2; this package reads 1: update"),
        (lambda file: _version(file, 0), "is a dump of invalid version 0"),
        (lambda file: _version(file, "new"), "is a dump of invalid version 'new'"),
    ],
)
def test_a_damaged_dump_is_an_error(damage: Callable[[Any], None], said: str, dumped: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    shutil.copy(dumped, path)
    with h5py.File(path, "r+") as file:
        damage(file)
    with pytest.raises(DataError, match=said):
        read_call(path, CALL)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("aten.mmm", "did you mean 'aten.mm.default/0'"),
        ("mm/7", "the calls of aten.mm.default are numbered 0 to 2"),
        ("", "names have the form aten."),
    ],
)
def test_an_unknown_call_is_an_error_with_the_nearest(name: str, said: str, dumped: Path) -> None:
    with pytest.raises(DataError, match=said):
        read_call(dumped, name)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"use_dmp": True}, "no argument 'use_dmp'; did you mean 'use_dump'"),
        ({"dump_path": None}, "dump_path None must be a .h5 file or a folder"),
        ({"load_file_path": 3}, "load_file_path 3 must be a file"),
        ({"check_overflow": True, "load_file_path": "a.h5"}, "needs use_load=True or use_dump=True"),
    ],
)
def test_invalid_arguments_are_errors(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        dumper(**arguments)


@pytest.mark.parametrize("limit", [-1, 0, "5G", float("nan"), True])
def test_a_limit_is_a_number_of_bytes(limit: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^.*limit .*bytes"):
        dumper(use_dump=True, dump_path=tmp_path / "a.h5", limit=limit).__enter__()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"dump_list": ["aten.mmm"], "dump_path": "out"}, r"operator 'aten\.mmm'; did you mean 'mm'"),
        (
            {"dump_list": ["aten.add.Tensr"], "dump_path": "out"},
            r"operator 'aten\.add\.Tensr'; did you mean 'Tensor'",
        ),
        ({"dump_path": "dump.json", "dump_op_switch": "on"}, "dump_path 'dump.json' cannot be written: .*; choose"),
    ],
)
def test_an_invalid_dump_configuration_is_an_error_at_once(
    config: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("dump.json")
    file.write_text(json.dumps({"dump": config}), encoding="utf-8")
    torch.sdaa.init_dump()
    try:
        with pytest.raises(ConfigError, match=message):
            torch.sdaa.set_dump(file)
        with pytest.raises(ConfigError, match=r"set_dump\(None\): .*JSON file"):
            torch.sdaa.set_dump(None)
    finally:
        torch.sdaa.finalize_dump()


def test_low_disk_space_is_reported_after_the_first_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for limit, warned in ((1_000_000, True), (100_000_000, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING), dumper(use_dump=True, dump_path=tmp_path / f"{limit}.h5", limit=limit):
            work(2)
        assert ("the first step takes up to 0." in caplog.text) is warned


def test_a_nested_dumper_is_not_recorded_by_the_outer(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "outer.h5"):
        work()
        with dumper(use_dump=True, dump_path=tmp_path / "inner.h5"):
            work()
    with open_training_dump(tmp_path / "outer.h5") as outer, open_training_dump(tmp_path / "inner.h5") as inner:
        assert len(outer.calls) == 2 * len(inner.calls)


def test_an_expanded_tensor_keeps_its_strides(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "a.h5"):
        x = torch.randn(5, 1, 7).to("sdaa").expand(5, 6, 7)
        x.sum()
    held = read_call(tmp_path / "a.h5", "sum.default")
    assert held.call.inputs[0].stride == (7, 0, 1)
    np.testing.assert_array_equal(replayed(held)[0], held.outputs[0])


def test_a_call_is_repeated_below_autocast(tmp_path: Path) -> None:
    with dumper(use_dump=True, dump_path=tmp_path / "a.h5"):
        torch.ones(2, 3, dtype=torch.float16, device="sdaa").sum(0)
    held = read_call(tmp_path / "a.h5", "sum.dim_IntList")
    with torch.autocast("sdaa", torch.float16):
        np.testing.assert_array_equal(replayed(held, "sdaa")[0], held.outputs[0])


def test_a_scaler_of_another_training_scales_no_loss(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("sdaa", init_scale=8.0)
    scaler.scale(torch.ones((), device="sdaa"))
    with dumper(use_dump=True, dump_path=tmp_path / "a.h5"):
        work(2)
    with open_training_dump(tmp_path / "a.h5") as dump:
        assert {call.loss_scale for call in dump.calls if call.step or call.phase != "forward"} == {None}


@pytest.mark.slow
def test_a_fused_optimizer_is_repeated_in_another_process(tmp_path: Path) -> None:
    from torch_sdaa.apex.optimizers import SdaaFusedLamb

    weight = torch.nn.Parameter(torch.ones(4, device="sdaa"))
    with dumper(use_dump=True, dump_path=tmp_path / "a.h5"):
        weight.square().sum().backward()
        SdaaFusedLamb([weight], 0.1).step()
    code = "import sys; from toolkit.cli import execute; sys.exit(execute(sys.argv[1:]))"
    cache = str(Path(str(sys.modules["_sdaa"].__file__)).parents[1])
    words = [sys.executable, "-c", code, "replay-op", "a.h5", "sdaa.fused_lamb_.default/0"]
    done = subprocess.run(
        words, cwd=tmp_path, env={**os.environ, "TECO_CACHE_DIR": cache}, capture_output=True, text=True
    )
    assert (done.returncode, "bit for bit" in done.stdout) == (0, True), done.stderr
