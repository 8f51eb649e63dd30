"""``teco train ops`` and ``teco ops --training``: the operators of a training and the device's table."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, RunPython

from engine import ConfigError, ModelError, TecoInferError
from tecoinfer_modelzoo.cache import cache_folder
from toolkit.commands.ops import main
from toolkit.commands.ops_training import report
from toolkit.output import SCHEMA_VERSION
from toolkit.training.operators.judge import FIX, VARYING, judge, summary
from toolkit.training.operators.table import (
    COMPOSITE,
    FALLBACK,
    KERNEL,
    LEVELS,
    MISSING,
    STORED,
    UNKNOWN,
    as_table,
    as_text,
    stored_table,
    yaml_text,
)
from toolkit.training.operators.watch import Asked, Watched, watch

CACHE = cache_folder("torch_sdaa")
"""Read before a test sets its own cache folder: the compiled extension is kept for all runs."""

TRAIN = """
import sys
import torch
import utils
from torch import nn

print("training with", *sys.argv[1:])
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
pairs = torch.utils.data.TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(0, 5, (64,)))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in torch.utils.data.DataLoader(pairs, batch_size=8, shuffle=True):
    optimizer.zero_grad()
    loss = utils.loss(net(x), y)
    loss.backward()
    optimizer.step()
open("finished", "w").close()
"""
UTILS = """
from torch.nn.functional import cross_entropy as loss
"""
BUILD = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)
    def forward(self, x):
        return self.last(torch.relu(self.inner(x)))
def build():
    torch.manual_seed(0)
    return Net(), torch.randn(4, 8), lambda y: y.square().mean()
def wide():
    net, batch, loss = build()
    return net.double(), (batch.double(),), loss
def wrong():
    return torch.nn.Linear(2, 2)
def flat():
    return torch.nn.Flatten(), torch.zeros(2, 2)
def no_loss():
    return (*build()[:2], None)
def wide_loss():
    return (*build()[:2], lambda y: y)
def nested():
    rows = [torch.randn(2, 8), torch.randn(3, 8)]
    return Net(), torch.nested.nested_tensor(rows, layout=torch.jagged), lambda y: y.values().sum()
def fails():
    raise KeyError("lost")
"""

STEPS = """
import torch
net = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
"""
ENDS = {
    "forward.py": "import torch\ntorch.ones(2).add(1)\n",
    "leaves.py": "raise SystemExit('no data')\n",
    "crash.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
    "cuda.py": "import torch\ntorch.ones(1).relu()\ntorch.nn.Linear(2, 2).cuda()\n",
    "thread.py": f"import threading\ndef run():\n{textwrap.indent(STEPS, '    ')}\n"
    "thread = threading.Thread(target=run)\nthread.start()\nthread.join()\n",
    "job/package/train.py": f"from .parts import *\n{STEPS}",
    "ctrl_c.py": "raise KeyboardInterrupt\n",
}
"""Scripts that do not train, by file."""


def _seen(name: str, **other: Any) -> dict[str, Any]:
    calls: dict[str, Any] = {"calls": {"forward": 1}, "dtypes": ["float32"], "shapes": ["2x2"], "layouts": []}
    return {
        "name": name,
        **calls,
        "first": "net.py:3",
        "forms": [{"call": [], "calls": 1, "later": 0}],
        "keys": [],
        **other,
    }


def _levels(*seen: dict[str, Any], asked: Asked | None = None) -> dict[str, str]:
    return {one.name: one.level for one in judge(Watched("", "end", 0, list(seen)), stored_table(), asked)}


ENDLESS = """
import time
import torch
torch.ones(3).relu()
while True:
    try:
        time.sleep(1)
    except Exception:
        print("not taken")
"""

# ------------------------------------------------------------------------------------------------------- the table


def test_the_stored_table_has_the_level_of_an_operator() -> None:
    table = stored_table()
    known = {
        "aten::mm": KERNEL,
        "aten::convolution_overrideable": KERNEL,
        "aten::relu": KERNEL,
        "aten::_softmax": KERNEL,
    }
    known |= {
        "aten::_linalg_svd": FALLBACK,
        "aten::linear": COMPOSITE,
        "aten::_cudnn_rnn": MISSING,
        "aten::nix": UNKNOWN,
    }
    assert {name: table.level(name) for name in known} == known
    assert "aten::nonzero" in table.varying
    assert Counter(table.levels.values()).keys() == LEVELS.keys()


def test_a_table_round_trips(tmp_path: Path) -> None:
    table = stored_table()
    assert as_table(as_text(table), Path("here")) == table
    assert yaml_text(table) == STORED.read_text(encoding="utf-8")
    for text in ("torch: 1", "- 1", "torch: ["):
        (tmp_path / "aten.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"aten\.yaml is not a"):
            stored_table(tmp_path / "aten.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        stored_table(tmp_path / "none.yaml")


def test_the_stored_table_is_of_the_torch_that_the_tests_run_with() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"torch=={stored_table().torch.partition('+')[0]}" in pins


@pytest.mark.torch
@pytest.mark.slow
def test_the_stored_table_equals_that_of_the_device(run_python: RunPython) -> None:
    """If this fails, run `python -m toolkit.training.operators`, which writes the table, and review the changes."""
    torch = pytest.importorskip("torch")
    if torch.__version__ != stored_table().torch:
        pytest.skip(f"the stored table is of torch {stored_table().torch}")
    done = run_python("-c", LIVE, **_cached())
    assert done.returncode == 0, done.stderr
    found, tried = json.loads(done.stdout)
    live, stored = as_table(found, Path("the device")), stored_table()
    changed = {name for name in {*live.levels, *stored.levels} if live.level(name) != stored.level(name)}
    assert not {name: (stored.level(name), live.level(name)) for name in sorted(changed)}
    assert live == stored
    assert (tried["ran"]["outcome"], tried["ran"]["launches"], tried["ran"]["seconds"] > 0) == (
        "ran",
        ["aten::mm"],
        True,
    )
    outcomes = {name: (one["outcome"], one["why"].partition(" with ")[0]) for name, one in tried.items() if one["why"]}
    assert outcomes["refused"] == ("refused", "Could not run 'aten::mm'")
    assert outcomes["failed"][0] == outcomes["opaque"][0] == "failed"
    assert outcomes["opaque"][1] == "not tried: it takes a nested tensor"


LIVE = """
import json
from dataclasses import asdict
from toolkit.training.operators import device, table
plain = {"tensor": ["float32", [2, 3], [3, 1], 0, 6]}
square = {"tensor": ["float32", [2, 2], [2, 1], 0, 4]}
calls = {"ran": [square, plain], "failed": [plain, plain], "opaque": [{"opaque": "nested tensor"}, plain]}
tried = {name: asdict(device.tried("aten::mm", [call, {"dict": {}}])) for name, call in calls.items()}
device.C.deny({"aten::mm"})
tried["refused"] = asdict(device.tried("aten::mm", [[square, plain], {"dict": {}}]))
print(json.dumps([table.as_text(device.live_table()), tried]))
"""


def _cached() -> dict[str, str]:
    return {"TECO_CACHE_DIR": str(CACHE.parent)} if CACHE else {}


# ------------------------------------------------------------------------------------------------------- judgement


def test_operators_of_a_script_are_judged_by_its_registrations() -> None:
    keys = {
        "own::device": ["CPU", "PrivateUse1"],
        "own::any": ["CompositeExplicitAutograd"],
        "own::cpu": ["CPU"],
        "own::no": [],
    }
    found = _levels(*(_seen(name, keys=one) for name, one in keys.items()))
    assert found == {"own::no": MISSING, "own::device": KERNEL, "own::any": COMPOSITE, "own::cpu": FALLBACK}
    assert next(iter(found)) == "own::no"  # what is missing comes first


def test_refused_operators_are_missing_and_accepted_ones_known() -> None:
    ran = {
        "outcome": "ran",
        "why": "",
        "seconds": 0.5,
        "assumed": 0.25,
        "launches": ["aten::mm"],
        "strict": ["strict mode: no"],
    }
    no = {**ran, "outcome": "refused", "why": "Could not run 'aten::mm'", "launches": [], "strict": [], "seconds": 0.0}
    sparse = _seen("aten::mul.Tensor", layouts=["sparse_coo"])
    assert _levels(sparse) == {"aten::mul.Tensor": UNKNOWN}
    asked = Asked(stored_table(), {"aten::mul.Tensor": [ran], "aten::mm": [no]})
    watched = Watched("2", "end", 0, [sparse, _seen("aten::mm")])
    mm, mul = judge(watched, asked.table, asked)
    assert (mm.level, mm.source, mm.seconds, list(mm.remarks)) == (
        MISSING,
        "tried: Could not run 'aten::mm'",
        None,
        [FIX],
    )
    assert (mul.level, mul.seconds, list(mul.parts), list(mul.remarks)) == (
        FALLBACK,
        0.5,
        ["aten::mm"],
        ["strict mode: no"],
    )
    made = report("net.py", watched, [mm, mul], asked.table)
    assert made.bad == {0}
    assert made.lead == "sdaa lacks aten::mm (1 CPU fallback, 1 missing)"
    assert any("500 ms of one SPA (simulated;" in note and "50 % of it by assumed rates" in note for note in made.notes)
    assert any("could not run them: aten::mm" in note for note in made.notes)


def test_limits_of_strict_mode_are_remarks() -> None:
    seen = [_seen("aten::mm", dtypes=["float64"]), _seen("aten::nonzero"), _seen("aten::relu")]
    remarks = [list(one.remarks) for one in judge(Watched("2", "end", 0, seen), stored_table(), None)]
    assert remarks == [["strict mode: float64, which such cards lack: use float32"], [f"strict mode: {VARYING}"], []]


def test_times_are_those_of_the_steps_after_the_first() -> None:
    ran = {"outcome": "ran", "why": "", "seconds": 1e-3, "assumed": 0.0, "launches": [], "strict": []}
    forms = [{"call": [], "calls": 9, "later": 6}]
    watched = Watched("2", "steps", 4, [_seen("aten::mm", forms=forms, calls={"forward": 9, "host": 2})])
    asked = Asked(stored_table(), {"aten::mm": [ran]})
    [one] = judge(watched, asked.table, asked)
    assert one.seconds == pytest.approx(6e-3)
    notes = report("net.py", watched, [one], asked.table).notes
    assert any("a step after the first takes 2 ms of one SPA (simulated" in note for note in notes)
    assert any(note.startswith("2 calls stay on the host") for note in notes)
    assert "no backward pass was run" in notes


def test_an_unknown_operator_is_not_a_success() -> None:
    found = judge(Watched("2", "end", 0, [_seen("aten::nix")]), stored_table(), None)
    assert summary(found).endswith("(1 unknown)")


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training"], "--training .*MODULE:NAME"),
        (["--training", "none.py"], r"none\.py "),
        (["--training", "none.module"], r"none\.module .*python -m"),
        (["--training", str(STORED)], r"aten\.yaml is not a Python file"),
        (["--training", "none.py:build"], r"none\.py:build: .*none\.py"),
        (["--training", "package.module:build", "--", "--epochs", "1"], "package.module:build .*--epochs 1"),
        (["--training", "none.py", "--steps", "0"], "--steps: '0'"),
        (["--training", "none.py", "--target", "onnx"], "--target onnx"),
    ],
)
def test_bad_arguments_are_one_line(words: list[str], message: str) -> None:
    with pytest.raises(TecoInferError, match=message) as raised:
        main(words)
    assert "\n" not in str(raised.value)


# ----------------------------------------------------------------------------------------------------- real trainings


def _teco(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **_cached()}
    command = [sys.executable, "-m", "toolkit.cli", "ops", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder; the training is in `job`, so that its `utils` does not shadow that of the command."""
    (tmp_path / "job").mkdir()
    for name, text in (("train.py", TRAIN), ("utils.py", UTILS), ("net.py", BUILD)):
        (tmp_path / "job" / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.slow
def test_a_script_is_run_for_some_steps_and_its_operators_listed(folder: Path) -> None:
    pytest.importorskip("torch")
    files = ["--json", "out.json", "--csv", "out.csv"]
    done = _teco("--training", "job/train.py", "--steps", 3, "--stored", *files, "--", "--epochs", 1, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "training with --epochs 1\n")
    assert "sdaa has everything the training needs" in done.stdout
    assert not (folder / "finished").exists()
    written = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert (written["schema_version"], written["facts"]["steps"], written["ended"]) == (SCHEMA_VERSION, "3", "steps")
    rows = {row["op"]: row for row in written["rows"]}
    calls = {op: tuple(rows[op][phase] for phase in ("forward", "backward", "update")) for op in rows}
    assert calls["aten::convolution"] == (3, None, None)
    assert calls["aten::convolution_backward"] == (None, 3, None)
    assert calls["aten::_foreach_add_.List"] == (None, None, 3)  # the form of SGD that torch takes on the device
    line = TRAIN.splitlines().index("    loss = utils.loss(net(x), y)") + 1
    assert rows["aten::convolution"]["first"] == rows["aten::convolution_backward"]["first"] == f"0 (train.py:{line})"
    assert rows["aten::convolution"]["shapes"] == "8x3x8x8 4x3x3x3 4"
    assert rows["aten::nll_loss_forward"]["dtypes"] == "float32 int64"
    assert "aten::stack" not in rows  # a DataLoader's
    with (folder / "out.csv").open(encoding="utf-8", newline="") as file:
        assert [row["op"] for row in csv.DictReader(file)] == list(rows)


SAME = """
import sys
import torch, torch_sdaa
from torch_sdaa.loading.core import C
from net import build
model, batch, loss = build()
model, batch = model.to("sdaa"), batch.to("sdaa")
C.settle()
before = C.times(0)["compute"]
loss(model(batch)).backward()
C.settle()
print(C.times(0)["compute"] - before)
"""


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.slow
def test_simulated_time_is_per_device(folder: Path) -> None:
    """The tool adds up single calls; a run of the same forward and backward on the device must give the same time."""
    pytest.importorskip("torch")
    done = _teco("--training", "job/net.py:build", "--json", "out.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads((folder / "out.json").read_text(encoding="utf-8"))["rows"]
    assert sum(row["share"] for row in rows) == pytest.approx(100, abs=0.5)
    expected = sum(row["seconds"] for row in rows)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder / 'job'}", **_cached()}
    live = subprocess.run([sys.executable, "-c", SAME], env=environment, capture_output=True, text=True, check=True)
    assert expected == pytest.approx(float(live.stdout), rel=1e-6)
    assert [row["first"] for row in rows if row["op"] == "aten::mm"] == ["last (net.py:8)"]
    assert {row["op"]: row["parts"] for row in rows}["aten::addmm"] == "aten::addmm"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("job/net.py:nothing", "'nothing'; .*MODULE:NAME"),
        ("job/net.py:wrong", r"job/net\.py:wrong .*\(model, batch\) or \(model, batch, loss"),
        ("job/net.py:no_loss", r"^job/net.py:no_loss .*\(model, batch\)"),
        ("job/net.py:wide_loss", r"job/net\.py:wide_loss: .*shape \(4, 2\)$"),
        ("cuda.py", r"with CUDA enabled; .*\.cuda\(\)"),
        ("thread.py", r"thread\.py .* main thread"),
        ("job/package/train.py", "no known parent package; .*PACKAGE.MODULE"),
        ("job/net.py:flat", r"job/net\.py:flat: .* gradient;"),
        ("job/net.py:fails", "after 0 steps: KeyError: 'lost'$"),
        ("forward.py", r"forward\.py .* without a backward"),
        ("leaves.py", "after 0 steps: .*'no data'$"),
        ("crash.py", r"crash\.py .*: SIGSEGV"),
        ("ctrl_c.py", r"ctrl_c\.py .*: exit code 130"),
    ],
)
def test_a_training_that_fails_is_one_line(
    what: str, message: str, folder: Path, monkeypatch: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    (folder / "job" / "package").mkdir()
    for name, text in ENDS.items():
        (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(ModelError, match=message) as raised:
        watch(what, [], 2, 60)
    assert "\n" not in str(raised.value)
    assert "KeyboardInterrupt" not in capfd.readouterr().err


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_an_endless_script_is_stopped_by_the_time_limit(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    (folder / "endless.py").write_text(ENDLESS, encoding="utf-8")
    found = watch("endless.py", [], 2, 10)
    assert (found.ended, found.steps, [one["name"] for one in found.operators]) == (
        "time",
        0,
        ["aten::ones", "aten::relu"],
    )
    notes = report("endless.py", found, judge(found, stored_table(), None), stored_table()).notes
    assert any("--timeout after 0 steps" in note for note in notes)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_float64_is_a_remark(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    found = judge(watch("job/net.py:wide", [], 2, 60), stored_table(), None)
    assert any("float64" in remark for one in found if one.name == "aten::addmm" for remark in one.remarks)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_a_module_is_run_as_python_m_does(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder / "job")
    (folder / "job" / "package").mkdir()
    (folder / "job" / "package" / "parts.py").write_text("import sys\n", encoding="utf-8")
    text = "from .parts import sys\nassert sys.argv[1:] == ['--epochs', '1'], sys.argv\n" + STEPS
    (folder / "job" / "package" / "train.py").write_text(text, encoding="utf-8")
    found = watch("package.train", ["--epochs", "1"], 2, 60)
    assert (found.ended, found.steps) == ("steps", 2)


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_a_nested_tensor_is_recorded_by_its_components(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    names = {one["name"] for one in watch("job/net.py:nested", [], 2, 60).operators}
    assert {"aten::addmm", "aten::mm"} <= names
