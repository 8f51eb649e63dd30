"""A model folder that passes a check, of fast scripts, which tests of the check modify."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from model_config.cases.config import read_cases
from model_config.judge import scorecard

SAMPLES = 6000
"""Enough samples for the gate's tolerance of 0.1 %."""

README = """\
# Stub

## 1. 模型概述

A network that answers from a table.

## 2. 快速开始

### 2.1 基础环境安装

The zoo itself.

### 2.2 安装第三方依赖

```bash
pip install -r requirements.txt
```

### 2.3 获取ONNX文件

```bash
python export_onnx.py
```

### 2.4 获取数据集

It lies in `data`.

### 2.5 启动推理

```bash
python example_single_batch.py
python example_multi_batch.py
```

### 2.6 精度验证

```bash
python example_valid.py
```
"""

EXPORT = '''\
"""Export the stub."""

from pathlib import Path


def main():
    """Write the model."""
    Path("stub.onnx").write_text("stub")


if __name__ == "__main__":
    main()
'''

VALID = '''\
"""Evaluate the stub: right or wrong as answers.json says."""

import argparse
import json
from pathlib import Path


def main():
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ckpt")
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--data_path")
    parser.add_argument("--target")
    parser.add_argument("--dtype")
    parser.add_argument("--json", type=Path)
    opt = parser.parse_args()
    Path(opt.ckpt).read_text()
    answers = json.loads(Path(opt.data_path).read_text())
    wrong = {int(index) for index in answers["wrong"][opt.target]}
    unread = {int(index) for index in answers["unread"][opt.target]}
    count = answers["samples"]
    rows = ["index,name,label,top1"]
    for index in range(count):
        value = "" if index in unread else int(index not in wrong)
        rows.append(f"{index},{answers['names']}{index},1,{value}")
    metric = 1 - len(wrong - unread) / (count - len(unread))
    result = {"metric_name": "top1", "metric": metric, "samples": count, "avg_sps": answers["sps"]}
    result["e2e_time"] = answers["seconds"]
    if opt.target == "sdaa":
        result["device"] = {"simulated_sps": answers["simulated_sps"], "simulated_latency": 0.001}
    if opt.json:
        opt.json.write_text(json.dumps(result))
        opt.json.with_name(opt.json.stem + ".samples.csv").write_text("\\n".join(rows) + "\\n")
    print(f"eval_metric {metric:.6f}")
    times = "avg_inference_time: 1e-05, avg_preprocess_time: 0.1, avg_postprocess: 0.0"
    print(f"summary: avg_sps: 9.5, e2e_time: 1, {times}")


def through_the_zoo():
    """Say what a real script uses."""
    from utils.pipeline import evaluate

    return evaluate


if __name__ == "__main__":
    main()
'''

SINGLE = '''\
"""Answer for one sample of the stub."""

from pathlib import Path
import sys


def main():
    """Run the script."""
    Path(sys.argv[2]).read_text()
    print("sample: 1")


def through_the_zoo():
    """Say what a real script uses."""
    from utils.pipeline import predict

    return predict


if __name__ == "__main__":
    main()
'''

PARAMS = {"ckpt": "stub.onnx", "batch_size": 4, "data_path": "data/answers.json", "target": "sdaa", "dtype": "float16"}

CASE: dict[str, Any] = {
    "case_name": "",
    "run_dir": "",
    "run_export": {"run_file": "export_onnx.py"},
    "run_example_valid": {"run_file": "example_valid.py", "params": PARAMS},
    "run_example_single": {"run_file": "example_single_batch.py", "params": PARAMS},
    "run_example_multi": {"run_file": "example_multi_batch.py", "params": PARAMS},
}

ANSWERS: dict[str, Any] = {
    "samples": SAMPLES,
    "wrong": {"sdaa": [1, 2, 3], "onnx": [1, 2, 3], "cpu": [1, 2]},
    "unread": {"sdaa": [], "onnx": [], "cpu": []},
    "names": "n",
    "sps": 100.0,
    "simulated_sps": 1000.0,
    "seconds": 5.0,
}


@dataclass
class Stub:
    """One model folder and its case, before they are written."""

    name: str
    root: Path
    files: dict[str, str | bytes | None] = field(default_factory=dict)
    case: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = {"README.md": README, "requirements.txt": "numpy\n", "export_onnx.py": EXPORT}
        self.files |= {"example_valid.py": VALID, "example_single_batch.py": SINGLE, "example_multi_batch.py": SINGLE}
        self.case = copy.deepcopy(CASE) | {"case_name": self.name, "run_dir": f"TecoInference/{self.run_dir}"}
        self.answers = copy.deepcopy(ANSWERS)

    @property
    def run_dir(self) -> str:
        return f"contrib/example/stubs/{self.name}"

    @property
    def folder(self) -> Path:
        return self.root / self.run_dir

    def script(self, name: str, old: str, new: str) -> None:
        """Change a file; the old text must be there."""
        text = self.files[name]
        assert isinstance(text, str)
        assert old in text, f"{name} has no {old!r}"
        self.files[name] = text.replace(old, new, 1)

    def valid(self, body: str) -> None:
        """Append code to the valid script's work."""
        self.script("example_valid.py", "\n\ndef through_the_zoo", f"\n{body}\n\n\ndef through_the_zoo")

    def write(self) -> None:
        (self.folder / "data").mkdir(parents=True)
        (self.folder / "data/answers.json").write_text(json.dumps(self.answers))
        for name, content in self.files.items():
            if content is not None:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content if isinstance(content, bytes) else content.encode())


Change = Callable[[Stub], None]


def write_zoo(root: Path, changes: dict[str, Change], extra: str = "") -> Path:
    """Write one stub per change, all cases in one file; return the file."""
    stubs = []
    for name, change in changes.items():
        stub = Stub(name, root)
        change(stub)
        stub.write()
        stubs.append(stub)
    file = root / "contrib/model_config/model.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(_text(stub) for stub in stubs)
    file.write_text(text + extra, encoding="utf-8")
    return file


def _text(stub: Stub) -> str:
    raw = stub.case.pop("raw", None)
    return str(raw) if raw else yaml.safe_dump([stub.case], sort_keys=False, allow_unicode=True)


def store_scorecard(file: Path, root: Path, name: str, **found: Any) -> Path:
    """Write the scorecard that an earlier check of a stub would have written; return the model's folder."""
    cases, _ = read_cases([file], root)
    case = next(case for case in cases if case.name == name)
    step = next(step for step in case.steps if step.name == "valid")
    figures = {"metric": 0.9995, "samples": SAMPLES, "accuracy": (), "speed": {}} | found
    measured = scorecard.Measured(case, step, "top1", model_sha256="0" * 64, data_sha256=None, **figures)
    folder = root / case.run_dir
    scorecard.write(folder, measured, "abc1234", "2026-11-21")
    return folder
