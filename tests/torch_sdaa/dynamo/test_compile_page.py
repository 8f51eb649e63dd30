"""``docs/how-to/training_performance.md``, torch.compile: its code runs, and saved engines open in another process."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from support import ROOT, RunPython
from walkthrough import actions, bash

torch = pytest.importorskip("torch")

PERFORMANCE = (ROOT / "docs" / "how-to" / "training_performance.md").read_text(encoding="utf-8")
PAGE = PERFORMANCE.split("\n## 6. torch.compile\n")[1].split("\n## ")[0]
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

OPEN = """
import sys
from pathlib import Path
import numpy as np
from engine import EngineSpec, open_engine
path = Path(sys.argv[1])
with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
    inputs = [stored[name] for name in stored if name.startswith("input_")]
    outputs = [stored[name] for name in stored if name.startswith("output_")]
with open_engine("sdaa", EngineSpec(ckpt=path, dtype="float32", divided=False, batch_size=1)) as engine:
    made = engine(inputs)
made = made if isinstance(made, list) else [made]
apart = sum(a.tobytes() != np.asarray(b, a.dtype).tobytes() for a, b in zip(outputs, made, strict=True))
print(len(outputs), apart)
"""

_INSTALLED = all(importlib.util.find_spec(name) for name in ("torchvision", "transformers"))

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.mark.long
def test_the_code_of_the_page_runs(run_python: RunPython) -> None:
    first, second = CODE.findall(PAGE)
    printed = run_python("-W", "ignore", "-c", first).stdout
    assert "forward: " in printed
    assert "1 drawn in advance" in printed
    assert printed.count("0 left to the device") == 2
    source = (ROOT / "torch_sdaa" / "dynamo" / "aten" / "pointwise.py").read_text(encoding="utf-8")
    assert second.splitlines()[-1].strip().partition("(")[0] in source


@pytest.mark.long
@pytest.mark.skipif(not _INSTALLED, reason="torchvision or transformers is not installed")
def test_the_artefacts_of_the_page_can_be_opened_by_another_process(tmp_path: Path, run_python: RunPython) -> None:
    where = {name: value for name, value in os.environ.items() if name != "TECO_CACHE_DIR"}  # the extension is there
    where |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    where["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), where["PATH"]])
    (command,) = (action.text for action in actions(PAGE) if action.kind == "bash")
    printed = bash(command.replace("example/", f"{ROOT}/example/"), tmp_path, where)
    assert printed.count("0 left to the device") == 2
    assert printed.count("largest difference 0\n") == 4
    again = bash(f"python {ROOT}/example/training/compile/main.py --out artefacts --reopen", tmp_path, where)
    assert again.count("largest difference 0\n") == 4
    simulated = {
        how: float(ms) for how, ms in re.findall(r"^(.*): warm step .* ([0-9.]+) ms simulated$", printed, re.M)
    }
    assert simulated["compiled"] <= simulated["not compiled"]
    shown = set(re.findall(r"[0-9.]+ ms", PAGE))
    assert {f"{ms:.2f} ms" for ms in simulated.values()} <= shown  # the page says what was measured
    for stage in ("forward", "backward"):
        count, apart = run_python(
            "-c", OPEN, str(tmp_path / "artefacts" / f"{stage}_0_0_0_0.tecoengine")
        ).stdout.split()
        assert int(count) > 100
        assert apart == "0"
