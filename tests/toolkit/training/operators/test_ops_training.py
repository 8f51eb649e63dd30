"""teco ops --training: the operators of a training against the device's table."""

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
"""Asked before a test's own cache folder is set: what is compiled stays for all runs."""

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


def test_the_stored_table_says_how_an_operator_is_served() -> None:
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


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = stored_table()
    assert as_table(as_text(table), Path("here")) == table
    assert yaml_text(table) == STORED.read_text(encoding="utf-8")
    for text in ("torch: 1", "- 1", "torch: ["):
        (tmp_path / "aten.yaml").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=r"aten\.yaml is no"):
            stored_table(tmp_path / "aten.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        stored_table(tmp_path / "none.yaml")


def test_the_stored_table_is_of_the_torch_that_the_tests_run_with() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert f"torch=={stored_table().torch.partition('+')[0]}" in pins


@pytest.mark.torch
@pytest.mark.slow
def test_the_stored_table_is_what_the_device_has(run_python: RunPython) -> None:
    """Where this fails, `python -m toolkit.training.operators` writes the table anew; look at what has changed."""
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


def test_operators_of_a_script_are_judged_by_what_it_registers() -> None:
    keys = {
        "own::device": ["CPU", "PrivateUse1"],
        "own::any": ["CompositeExplicitAutograd"],
        "own::cpu": ["CPU"],
        "own::no": [],
    }
    found = _levels(*(_seen(name, keys=one) for name, one in keys.items()))
    assert found == {"own::no": MISSING, "own::device": KERNEL, "own::any": COMPOSITE, "own::cpu": FALLBACK}
    assert next(iter(found)) == "own::no"  # what is missing comes first


def test_what_the_device_refuses_is_missing_and_what_it_takes_is_not_unknown() -> None:
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


def test_what_is_not_known_is_no_success_in_words() -> None:
    found = judge(Watched("2", "end", 0, [_seen("aten::nix")]), stored_table(), None)
    assert summary(found) == "whether sdaa has everything the training needs is not known (1 unknown)"


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--training"], "--training needs a script or MODULE:NAME"),
        (["--training", "none.py"], "there is no script none.py; pass a Python file"),
        (["--training", "none.module"], "there is no script none.module; pass a Python file, or a module as python -m"),
        (["--training", str(STORED)], "aten.yaml is no Python file; pass the script that trains"),
        (["--training", "none.py:build"], "none.py:build: file none.py does not exist"),
        (["--training", "package.module:build", "--", "--epochs", "1"], "takes no arguments: --epochs 1"),
        (["--training", "none.py", "--steps", "0"], "'0' is not a whole number from 1 up"),
        (["--training", "none.py", "--target", "onnx"], "unrecognized arguments: --target onnx"),
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
    """Return a folder; what is trained lies in `job`, so that its `utils` is not in the way of the command itself."""
    (tmp_path / "job").mkdir()
    for name, text in (("train.py", TRAIN), ("utils.py", UTILS), ("net.py", BUILD)):
        (tmp_path / "job" / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.slow
def test_a_script_is_run_for_some_steps_and_its_operators_told(folder: Path) -> None:
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
def test_the_simulated_time_is_the_devices_own(folder: Path) -> None:
    """The tool adds up single calls; the device, in a run of the same forward and backward, must come to the same."""
    pytest.importorskip("torch")
    done = _teco("--training", "job/net.py:build", "--json", "out.json", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads((folder / "out.json").read_text(encoding="utf-8"))["rows"]
    assert sum(row["share"] for row in rows) == pytest.approx(100, abs=0.5)
    told = sum(row["seconds"] for row in rows)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder / 'job'}", **_cached()}
    live = subprocess.run([sys.executable, "-c", SAME], env=environment, capture_output=True, text=True, check=True)
    assert told == pytest.approx(float(live.stdout), rel=1e-6)
    assert [row["first"] for row in rows if row["op"] == "aten::mm"] == ["last (net.py:8)"]
    assert {row["op"]: row["parts"] for row in rows}["aten::addmm"] == "aten::addmm"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("job/net.py:nothing", "has no function 'nothing'; pass MODULE:NAME"),
        ("job/net.py:wrong", r"must return \(model, batch\) or \(model, batch, loss"),
        ("job/net.py:no_loss", r"^job/net.py:no_loss must return \(model, batch\) or"),
        ("job/net.py:wide_loss", r"the loss must be a tensor of one number, and is of shape \(4, 2\)$"),
        ("cuda.py", r"with CUDA enabled; it is run on the CPU: give it a flag for the device"),
        ("thread.py", "ran no operator of torch in its main thread, and only that is watched$"),
        ("job/package/train.py", "no known parent package; name it as python -m does: PACKAGE.MODULE"),
        ("job/net.py:flat", "nothing in the model's output has a gradient; return a loss as the third"),
        ("job/net.py:fails", "failed after 0 steps: KeyError: 'lost'$"),
        ("forward.py", "ran to its end without a backward; pass the script that trains, with its arguments"),
        ("leaves.py", "failed after 0 steps: it ended with 'no data'$"),
        ("crash.py", "ended its process: SIGSEGV, a crash in native code; what it said stands above"),
        ("ctrl_c.py", "ended its process: exit code 130"),
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
def test_a_script_that_does_not_end_is_stopped_by_the_time(folder: Path, monkeypatch: Any) -> None:
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
def test_float64_is_remarked(folder: Path, monkeypatch: Any) -> None:
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
def test_a_nested_tensor_is_seen_by_what_it_is_made_of(folder: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.chdir(folder)
    names = {one["name"] for one in watch("job/net.py:nested", [], 2, 60).operators}
    assert {"aten::addmm", "aten::mm"} <= names
