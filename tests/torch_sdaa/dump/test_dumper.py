"""``torch_sdaa.utils.dumper``: contents and errors; each call can be repeated from the file alone."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")

import torch_sdaa  # noqa: E402
from engine import ConfigError, DataError  # noqa: E402
from engine.training import as_numbers, open_training_dump, read_call  # noqa: E402
from torch_sdaa.dump.replay import replayed  # noqa: E402
from torch_sdaa.faults.operator_faults import OpFault, clear, parse, plant  # noqa: E402
from torch_sdaa.utils import dumper, first_difference, watch_modules  # noqa: E402

pytestmark = pytest.mark.torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)
        self.norm = torch.nn.BatchNorm2d(2)
        self.drop = torch.nn.Dropout(0.5)
        self.head = torch.nn.Linear(32, 3)

    def forward(self, x: Any) -> Any:
        return self.head(self.drop(torch.relu(self.norm(self.conv(x)))).flatten(1))


def train(device: str = "sdaa", steps: int = 2, half: bool = False, scale: float = 1024.0, batch: int = 0) -> None:
    torch.manual_seed(0)
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler(device, init_scale=scale, enabled=half)
    torch.manual_seed(1 + batch)
    x, labels = torch.randn(2, 1, 6, 6).to(device), torch.tensor([0, 1]).to(device)
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(device, torch.float16, enabled=half):
            loss = torch.nn.functional.cross_entropy(model(x), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dump") / "a.h5"
    with dumper(use_dump=True, dump_path=path):
        train()
    return path


def test_the_dumper_is_published() -> None:
    assert torch.utils.dumper is dumper is torch_sdaa.utils.dumper


def test_a_call_has_its_origin(dumped: Path) -> None:
    with open_training_dump(dumped) as dump:
        calls = dump.calls
        assert dump.finished
        assert dump.about["modules"]["Net.norm"] == "BatchNorm2d"
        assert dump.about["parameters"]["Net.head.weight"] == [3, 32]
    assert [call.index for call in calls] == list(range(len(calls)))
    assert {call.step for call in calls} == {0, 1}
    found = {(call.op, call.phase, call.module) for call in calls}
    assert ("aten.convolution.default", "forward", "Net.conv") in found
    assert ("aten.convolution_backward.default", "backward", "Net.conv") in found
    assert ("aten.native_batch_norm_backward.default", "backward", "Net.norm") in found
    assert any(phase == "optimizer" and module == "Adam" for _, phase, module in found)
    [back] = [call for call in calls if call.op.startswith("aten.convolution_backward") and call.step == 1]
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    where, _, function = back.source.partition(" in ")
    assert function == "forward"
    assert "self.head(self.drop(" in lines[int(where.rpartition(":")[2]) - 1]


@pytest.mark.parametrize("device", ["cpu", "sdaa"])
def test_every_call_is_repeated_from_the_file_alone(device: str, dumped: Path) -> None:
    before = torch.get_rng_state()
    drawn = 0
    with open_training_dump(dumped) as dump:
        for call in dump.calls:
            if call.view or call.empty:
                continue
            held = dump.read(call)
            for one, was, again in zip(call.outputs, held.outputs, replayed(held, device), strict=True):
                np.testing.assert_array_equal(as_numbers(was, one.dtype), again, call.where)
            drawn += call.draws
    torch.set_rng_state(before)
    assert drawn >= 2


def test_equal_tensors_are_stored_once(dumped: Path) -> None:
    with open_training_dump(dumped) as dump:
        sizes = {one.digest: int(np.prod(one.shape)) for call in dump.calls for one in (*call.inputs, *call.outputs)}
        total = sum(int(np.prod(one.shape)) for call in dump.calls for one in (*call.inputs, *call.outputs))
    assert sum(sizes.values()) < 0.5 * total
    assert b"\x80\x04\x95" not in dumped.read_bytes()  # how a pickle begins


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "float16", "bool", "int8", "float8_e4m3fn"])
def test_every_dtype_is_restored(dtype: str, tmp_path: Path) -> None:
    x = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).to("sdaa")
    with dumper(use_dump=True, dump_path=tmp_path / "d.h5"):
        x.t().clone()
    held = read_call(tmp_path / "d.h5", "clone")
    [one] = held.call.outputs
    assert one.dtype == dtype
    again = replayed(held)
    np.testing.assert_array_equal(as_numbers(held.outputs[0], dtype), again[0])
    if dtype == "bfloat16":
        assert again[0].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_in_place_arguments_are_stored_before_and_after(tmp_path: Path) -> None:
    for device in ("cpu", "sdaa"):
        x = torch.ones(3, device=device)
        with dumper(use_dump=True, dump_path=tmp_path / f"{device}.h5"):
            torch._foreach_mul_([x], 3.0)
        held = read_call(tmp_path / f"{device}.h5", "_foreach_mul_.Scalar")
        assert (held.inputs[0].tolist(), held.outputs[0].tolist(), held.call.written) == ([1] * 3, [3] * 3, (0,))


def test_calls_compute_on_loaded_inputs(dumped: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.h5"
    with dumper(use_dump=True, load_file_path=dumped, dump_path=path) as found:
        train(batch=1)  # another batch
    assert found.loaded > 50
    with open_training_dump(dumped) as a, open_training_dump(path) as b:
        pairs = [(one, b.call(one.where)) for one in a.calls if not (one.view or one.draws or one.empty)]
        same = [x.outputs == y.outputs for x, y in pairs if x.inputs and x.phase != "optimizer"]
    assert all(same[:20])


@pytest.mark.parametrize(("half", "scale", "phase"), [(True, 2.0**60, "backward"), (False, 1.0, "forward")])
def test_an_overflow_is_reported_with_its_origin(
    half: bool, scale: float, phase: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if not half:
        plant(OpFault("nan", "aten::addmm"))
    try:
        with caplog.at_level(logging.WARNING), dumper(check_overflow=True, dump_path=tmp_path) as found:
            train(steps=1, half=half, scale=scale)
    finally:
        clear()
    first = found.overflows[0]
    assert (first.phase, first.step, first.loss_scale) == (phase, 0, scale if half else None)
    assert found.path == tmp_path / "overflow.h5"
    assert f"overflow: {first.where}" in caplog.text
    assert f", {phase} of step 0" in caplog.text
    with open_training_dump(found.path) as dump:
        assert [call.where for call in dump.calls] == [call.where for call in found.overflows]


def test_a_mask_is_not_an_overflow(tmp_path: Path) -> None:
    with dumper(check_overflow=True, dump_path=tmp_path) as found:
        x = torch.ones(2, 2, device="sdaa").masked_fill(torch.eye(2, device="sdaa").bool(), float("-inf"))
        x.softmax(-1)
    assert not found.overflows
    assert not list(tmp_path.iterdir())


def test_an_optimizer_division_by_zero_is_not_an_overflow(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.ones(2, device="sdaa"))
    optimizer = torch.optim.RAdam([weight], 1e-2)  # its first steps divide by 0, and take the reciprocal
    with dumper(check_overflow=True, dump_path=tmp_path) as found:
        weight.square().sum().backward()
        optimizer.step()
    assert not found.overflows
    with dumper(check_overflow=True, dump_path=tmp_path) as found:
        torch.ones(2, device="sdaa").div(0.0)  # of the script it is one
    assert [call.op for call in found.overflows] == ["aten.div.Tensor"]


def test_a_failed_call_is_the_last_one(tmp_path: Path) -> None:
    plant(OpFault("deny", "aten::addmm", call=1))
    try:
        with (
            pytest.raises(RuntimeError, match="denied call 1 of aten::addmm"),
            dumper(True, dump_path=tmp_path / "d.h5"),
        ):
            train()
    finally:
        clear()
    with open_training_dump(tmp_path / "d.h5") as dump:
        assert not dump.finished
        assert dump.calls[-1].where == "aten.addmm.default/1"
        assert "denied" in dump.calls[-1].failed


def test_exceeding_the_limit_or_the_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dumper(use_dump=True, dump_path=tmp_path / "a.h5", limit=100_000)
    with pytest.raises(DataError, match=r"limit of 0\.\d+ MiB"), small:
        train()
    assert (tmp_path / "a.h5").stat().st_size < 100_000
    with open_training_dump(tmp_path / "a.h5") as dump:
        assert not dump.finished
        assert dump.calls
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**30, 2**30, 0))
    with (
        pytest.raises(DataError, match=r"0\.00 MiB free"),
        dumper(True, dump_path=tmp_path / "b.h5"),
    ):
        train()


@pytest.mark.slow
def test_a_killed_process_leaves_its_finished_calls(tmp_path: Path) -> None:
    code = (
        "import os, signal, torch, torch_sdaa\n"
        "with torch.utils.dumper(use_dump=True, dump_path='d.h5'):\n"
        "    x = torch.ones(50, 50).to('sdaa')\n"
        "    for k in range(20): x = x @ x\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    cache = str(Path(str(sys.modules["_sdaa"].__file__)).parents[1])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "TECO_CACHE_DIR": cache})
    assert done.returncode == -signal.SIGKILL
    with open_training_dump(tmp_path / "d.h5") as dump:
        assert not dump.finished
        assert [call.op for call in dump.calls].count("aten.mm.default") == 20


def test_a_truncated_file_is_an_error(dumped: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.h5"
    cut.write_bytes(dumped.read_bytes()[:20_000])
    with pytest.raises(DataError, match=r"cut\.h5 .*cut short"):
        open_training_dump(cut)
    cut.write_bytes(b"no dump")
    with pytest.raises(DataError, match=r"cut\.h5 .*HDF5"):
        open_training_dump(cut)


def test_invalid_files_and_calls_are_errors(dumped: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exists; name a new file"), dumper(True, dump_path=dumped):
        train()
    with pytest.raises(ConfigError, match="needs load_file_path="):
        dumper(use_load=True)
    with pytest.raises(DataError, match=r"none\.h5 does not exist"), dumper(use_load=True, load_file_path="none.h5"):
        train()
    with pytest.raises(DataError, match=r"did you mean 'aten\.addmm\.default/0'"):
        read_call(dumped, "aten.addm.default/0")


# --------------------------------------------------------------------------------------------------- set_dump, and more


def _set_dump(path: Path, **fields: Any) -> Path:
    file = path / "dump.json"
    file.write_text(json.dumps({"dump": fields}), encoding="utf-8")
    return file


@pytest.mark.parametrize(("mode", "inputs", "outputs"), [("all", 1, 1), ("input", 1, 0), ("output", 0, 1)])
def test_a_file_for_every_call(mode: str, inputs: int, outputs: int, tmp_path: Path) -> None:
    file = _set_dump(tmp_path, dump_list=["add_"], dump_path=str(tmp_path / "out"), dump_mode=mode, dump_op_switch="on")
    torch.sdaa.init_dump()
    torch.sdaa.set_dump(file)
    a = torch.tensor([2, 2]).to("sdaa:0")
    a.add_(1)
    torch.sdaa.finalize_dump()
    a.add_(1)
    [made] = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert [part.isdigit() for part in made.relative_to(tmp_path / "out").parts[:4]] == [True] * 4
    kind, name, task, stream, stamp = made.name.split(".")
    assert (kind, name) == ("add_", "forward_add_")
    assert (task + stream + stamp).isdigit()
    held = read_call(made, "aten.add_.Tensor/0")
    assert (len(held.inputs), len(held.outputs)) == (inputs, outputs)
    if mode == "output":
        assert held.outputs[0].tolist() == [3, 3]
        with pytest.raises(DataError, match="dumped without its inputs"):
            replayed(held)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dump_pth": "x"}, "no field 'dump_pth'; did you mean 'dump_path'"),
        ({"dump_path": "x", "dump_mode": "both"}, "dump_mode 'both' must be one of output, input, all"),
        ({"dump_path": "x", "dump_op_switch": "yes"}, "'yes' must be on or off"),
        ({}, "dump_path '' must be a folder"),
    ],
)
def test_an_invalid_configuration_is_an_error(fields: dict[str, str], said: str, tmp_path: Path) -> None:
    torch.sdaa.init_dump()
    try:
        with pytest.raises(ConfigError, match=said):
            torch.sdaa.set_dump(_set_dump(tmp_path, **fields))
    finally:
        torch.sdaa.finalize_dump()
    with pytest.raises(ConfigError, match=r"needs torch.sdaa.init_dump\(\) before"):
        torch.sdaa.set_dump(tmp_path / "dump.json")


def test_an_extracted_call_is_loaded_and_written(dumped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(dumped) as a, h5py.File(tmp_path / "part.h5", "w") as b:
        a.copy("aten.addmm.default/1", b.create_group("aten.addmm.default"), "1")
    monkeypatch.chdir(tmp_path)
    _set_dump(tmp_path, dump_path="out", dump_mode="all", dump_op_switch="on").rename("acl.json")
    with dumper(use_load=True, dump_path="./", load_file_path="part.h5", load_with_acl_dump=True) as found:
        train()
    assert found.loaded == 1
    [made] = [path for path in Path("out").rglob("*") if path.is_file()]
    held, was = read_call(made, "aten.addmm.default/1"), read_call(dumped, "aten.addmm.default/1")
    assert held.call.inputs[0].digest == was.call.inputs[0].digest
    np.testing.assert_array_equal(held.outputs[0], was.outputs[0])


def test_the_first_difference_of_two_runs() -> None:
    assert first_difference(lambda: train(steps=1)) is None
    plant(OpFault("perturb", "aten::native_batch_norm", call=1))
    try:
        found = first_difference(lambda: train(steps=1))
    finally:
        clear()
    assert found is not None
    assert "native_batch_norm.default/0 of Net.norm, forward of step 0" in str(found)
    assert "equal inputs gave other results" in str(found)
    batches = iter((1, 2))
    parted = first_difference(lambda: train(steps=1, batch=next(batches)))
    assert parted is not None
    assert "randn.default/0, forward of step 0" in str(parted)
    assert "it draws other random numbers" in str(parted)


def test_modules_are_watched() -> None:
    model = Net().to("sdaa")
    plant(OpFault("nan", "aten::convolution_backward"))
    try:
        with watch_modules(model) as watched:
            x = torch.randn(2, 1, 6, 6, device="sdaa", requires_grad=True)
            model(model.conv(x).mean() * x).sum().backward()
    finally:
        clear()
    assert {row.module for row in watched.rows} == {"", "conv", "norm", "drop", "head"}
    bad = watched.first_bad()
    assert bad is not None
    assert (bad.module, bad.phase, bad.call) == ("conv", "backward", 0)
    assert not model.conv._forward_hooks


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("perturb", "is not a fault; write KIND:op="),
        ("nan:op=aten::mmm", "unknown operator 'aten::mmm'; did you mean"),
        ("nan:op=aten::mm,size=2", "is not a fault"),
        ("perturb:op=aten::mm,call=x", "call, device and size are numbers"),
        ("perturb:op=aten::mm,size=0", "a number other than 0"),
        ("deny:op=aten::mm,call=-1", "count from 0"),
    ],
)
def test_invalid_faults_are_errors(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse(text)


def test_faults_occur_once() -> None:
    x = torch.ones(4, 4, device="sdaa")
    plant(*parse("perturb:op=aten.mm.default,call=1,size=0.5; nan:op=aten::add.Tensor"))
    try:
        first, second, third = x @ x, x @ x, x @ x
        assert first.equal(third)
        assert second.flatten()[:2].tolist() == [6.0, 2.0]
        assert (x + x).isnan().all()
        assert (x + x).equal(2 * x)
    finally:
        clear()
