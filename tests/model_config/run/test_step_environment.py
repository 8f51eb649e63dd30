"""Tests of the environment of steps: listed variables, and no secrets."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine import ConfigError
from engine.host import variables
from model_config.cases.case import Case, Command
from model_config.check import main
from model_config.run.environment import check_names, environment_of, handed_on
from model_config.run.foreign import Foreign
from model_config.run.limits import Limits
from model_config.run.preloaded import EXAMPLES, Preloaded
from model_config.run.runner import Slot, run_step

SECRETS = {
    "GITHUB_TOKEN": "ghp_1",
    "AWS_SECRET_ACCESS_KEY": "aws_2",
    "DATABASE_URL": "postgres://u:pw_3@host/db",
    "TECO_API_KEY": "key_4",
    "OMPI_MY_PASSWORD": "pw_5",
    "HF_TOKEN": "hf_6",
    "https_proxy": "http://user:pw_7@proxy:3128",
    "PIP_INDEX_URL": "https://__token__:pw_8@index/simple",
    "npm_config__auth": "npm_9",
    "SSH_AUTH_SOCK": "/run/agent.10",
    "CI_JOB_JWT": "jwt_11",
    "PIP_FIND_LINKS": "/wheels https://user:pw_12@host/wheels",
    "TECO_REGISTRY": "https://pw_13@host/",
    "OMPI_MCA_URL": "tcp://u:pw_14@host",
}
"""Variables that must not reach a step."""

HANDED = {
    "TECO_SIM_CARDS": "2",
    "OMP_NUM_THREADS": "3",
    "LC_ALL": "C.UTF-8",
    "TZ": "Europe/Berlin",
    "http_proxy": "http://proxy:3128",
    "CXX": "clang++",
    "SDAA_VISIBLE_DEVICES": "0,1",
}


@pytest.fixture(autouse=True)
def _set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**SECRETS, **HANDED}.items():
        monkeypatch.setenv(name, value)


def found_by_a_step(folder: Path, *more: str, slot: Slot | None = None) -> dict[str, str]:
    """Return the environment that a step saw."""
    (folder / "tree/example/a/b").mkdir(parents=True, exist_ok=True)
    (folder / "tree/example/a/b/export.py").write_text(
        "import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n"
    )
    case = Case("b", "example/a/b", (), folder / "model.yaml")
    step = Command("export", "export.py", {})
    limits = Limits()
    result = run_step(case, step, folder / "tree", folder / "logs", limits, slot=slot, handed=more)
    assert result.passed, result.reason
    seen: dict[str, str] = json.loads(result.stdout.read_text())
    return seen


@pytest.mark.parametrize("shared", [False, True])
def test_steps_get_no_secret_variables(tmp_path: Path, shared: bool) -> None:
    if shared and Preloaded().given_up:
        pytest.skip("no forks here")
    server = Preloaded(modules=EXAMPLES[:1])
    try:
        seen = found_by_a_step(tmp_path, slot=Slot(others=server) if shared else None)
    finally:
        server.close()
    assert not set(SECRETS) & set(seen)
    assert not [value for value in SECRETS.values() if value in json.dumps(seen)]
    assert {name: seen.get(name) for name in HANDED} == HANDED
    assert seen["PATH"] == os.environ["PATH"]


def test_a_variable_is_handed_on_by_name(tmp_path: Path) -> None:
    seen = found_by_a_step(tmp_path, "GITHUB_TOKEN", "HF_TOKEN")
    assert {name for name in SECRETS if name in seen} == {"GITHUB_TOKEN", "HF_TOKEN"}


def test_queries_of_contributed_code_get_no_secret_variables(tmp_path: Path) -> None:
    package = tmp_path / "contrib/utils/tasks"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("import pkgutil\n\n__path__ = pkgutil.extend_path(__path__, __name__)\n")
    (package / "says.py").write_text(
        f"import os, pathlib, json\npathlib.Path({str(tmp_path)!r}, 'seen').write_text(json.dumps(dict(os.environ)))\n"
    )
    assert Foreign(tmp_path).ask("flags", module="utils.tasks.says", name="X") == {"flags": None}
    seen = json.loads((tmp_path / "seen").read_text())
    assert not set(SECRETS) & set(seen)
    assert seen["OMP_NUM_THREADS"] == "3"


def test_the_zoos_own_variables_are_handed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name for name in variables() if name not in SECRETS}
    assert own <= set(handed_on())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TECO_CACHE_DIR", "cache")
    assert environment_of(tmp_path)["TECO_CACHE_DIR"] == str(tmp_path / "cache")  # a step starts in another folder


def test_names_that_cannot_be_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check_names(["GITHUB_TOKEN"])
    for name in ("NOT_SET_ANYWHERE", "PYTHONPATH"):
        with pytest.raises(ConfigError, match=name):
            check_names([name])
        assert main(["--env", name], root=tmp_path) == 2
        assert name in capsys.readouterr().err


def test_every_variable_of_the_configuration_page_is_handed_on() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/configuration.md").read_text(encoding="utf-8")
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    names = {name for cell in cells for word in cell.split(",") if (name := word.strip("` ")).isupper()}
    assert len(names) > 15
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setenv(name, "1")
        assert names <= set(handed_on())
