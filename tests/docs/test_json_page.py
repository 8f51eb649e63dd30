"""``docs/reference/json.md`` has every JSON output of the installed packages, with its current version."""

from __future__ import annotations

import ast
import re

from support import ROOT

PAGE = (ROOT / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| .* \| .* \| (\d+) \| .* \| `([\w/]+\.py):(\w+)` \|$", PAGE, re.MULTILINE)
PACKAGES = ("engine", "model_config", "serve", "tecoexec", "toolkit", "torch_sdaa", "transplant", "utils")
INTERNAL = {
    "engine/backends/trt_plan.py": "the record of a saved plan",
    "engine/sdaa/saved.py": "the manifest in a saved engine",
    "engine/sdaa/status.py": "status files of running engines, for teco-smi",
    "engine/training/dump.py": "an attribute of an HDF5 file, in training_accuracy.md",
    "model_config/judge/scorecard.py": "numerics.yaml and perf.yaml",
    "toolkit/dump/recover.py": "the manifest of a dump",
    "toolkit/dump/writer.py": "the manifest of a dump",
    "toolkit/fix/saving.py": "the trials of an interrupted search",
    "utils/pipeline/resume/journal.py": "the first line of a journal",
}
"""Files that write a version, but not into a JSON output of a command."""

SAME = {"utils/pipeline/answers.py": "utils/pipeline/report/report.py", "tecoexec/sweep.py": "tecoexec/report.py"}
"""Files that write the version of another one."""


def constant(file: str, name: str) -> object:
    """Return the value of a constant of a module, without importing it."""
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Name) and target.id == name:
                return ast.literal_eval(node.value)
            if isinstance(target, ast.Tuple) and name in [ast.unparse(one) for one in target.elts]:
                values = ast.literal_eval(node.value)
                return values[[ast.unparse(one) for one in target.elts].index(name)]
    raise AssertionError(f"{file} has no {name}")


def test_versions_are_current() -> None:
    assert len(ROWS) >= 15
    for version, file, name in ROWS:
        assert constant(file, name) == int(version), file


def test_every_output_is_listed() -> None:
    writing = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"[{ ]\"schema_version\": ", path.read_text(encoding="utf-8"))
    }
    listed = {file for _, file, _ in ROWS}
    assert {SAME.get(file, file) for file in writing} - set(INTERNAL) - listed == set()
    assert set(INTERNAL) <= writing
    assert listed <= writing
