""".ci/audit: finds vulnerabilities with the project's settings, and reports failed queries."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support import ROOT

UNSAFE = {
    "a shell": "import subprocess\nsubprocess.run('ls ' + input(), shell=True)\n",
    "eval": "print(eval(input()))\n",
    "a pickle": "import pickle\nprint(pickle.load(open('x', 'rb')))\n",
    "yaml": "import yaml\nprint(yaml.load(open('x'), Loader=yaml.Loader))\n",
    "an archive": "import tarfile\ntarfile.open('x').extractall('.')\n",
}
VULNERABLE: dict[str, Any] = {
    "dependencies": [
        {"name": "flask", "version": "0.5", "vulns": [{"id": "PYSEC-2019-179", "aliases": ["CVE-2019-1010083"]}]},
        {"name": "jinja2", "version": "3.1.6", "vulns": []},
        {"name": "ours", "skip_reason": "Dependency not found on PyPI and could not be audited: ours (0.1)"},
    ]
}
VULNERABLE["dependencies"][0]["vulns"][0] |= {"fix_versions": ["1.0"], "description": "Denial of service."}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = SourceFileLoader("ci_audit", str(ROOT / ".ci" / "audit"))
    spec = importlib.util.spec_from_loader("ci_audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_vulnerabilities_are_listed_unless_accepted(audit: ModuleType) -> None:
    assert list(audit.weaknesses(VULNERABLE, {})) == ["flask 0.5: PYSEC-2019-179, repaired in: 1.0"]
    assert not list(audit.weaknesses(VULNERABLE, {"CVE-2019-1010083": "Flask serves nothing here"}))


def test_obsolete_accepted_vulnerability_is_reported(audit: ModuleType) -> None:
    found = {"dependencies": [{"name": "jinja2", "version": "3.1.6", "vulns": []}]}
    assert "CVE-1 is reported no more" in next(audit.weaknesses(found, {"CVE-1": "why"}))
    unaudited = {"dependencies": [{"name": "jinja2", "skip_reason": "no network"}]}
    assert not list(audit.weaknesses(unaudited, {"CVE-1": "why"}))


def test_unpinned_package_is_reported(audit: ModuleType) -> None:
    pins = "numpy==2.0.0\nPyYAML==6.0\ntorch==2.13.0\n"
    assert not list(audit.without_pin(pins, {"numpy": "2.0.0", "pyyaml": "6.0", "torch": "2.13.0+cpu", "pip": "1"}))
    lines = list(audit.without_pin(pins, {"numpy": "2.1.0", "left_pad": "1"}))
    assert lines == [
        "constraints.txt: left_pad 1 is installed, the pin is missing",
        "constraints.txt: numpy 2.1.0 is installed, the pin is 2.0.0",
    ]


def test_accepted_vulnerabilities_need_reasons(audit: ModuleType, tmp_path: Path) -> None:
    assert audit.known(tmp_path / "missing.yaml") == {}
    (tmp_path / "known.yaml").write_text("CVE-1:\n")
    with pytest.raises(ValueError, match=r"known\.yaml: must be lines"):
        audit.known(tmp_path / "known.yaml")


@pytest.mark.slow
def test_unsafe_code_is_found_by_the_projects_settings(tmp_path: Path) -> None:
    pytest.importorskip("bandit")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "engine").mkdir()
    (tmp_path / "none.json").write_text(json.dumps({"dependencies": [{"name": "x", "skip_reason": "no network"}]}))
    words = [sys.executable, str(ROOT / ".ci" / "audit"), "--root", str(tmp_path), "--advisories", "none.json"]
    for what, code in UNSAFE.items():
        (tmp_path / "engine" / "found.py").write_text(code)
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 1, f"{what}: {ran.stdout}{ran.stderr}"
        assert "engine/found.py" in ran.stdout, what
        assert "nothing is known of the packages' weaknesses" in ran.stdout
