"""Workflows, the action, the hook, the devcontainer and the files for people: they are valid and name what exists."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import ROOT

from model_config.check import _arguments

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PARSE = ["bash", "-n"]
PAGE = "docs/how-to/containers_and_ci.md"
SCHEMAS = {
    "github-workflows": WORKFLOWS,
    "github-actions": [ROOT / "action.yml"],
    "github-issue-forms": [form for form in FORMS if form.stem != "config"],
    "github-issue-config": [ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"],
    "compose-spec": [ROOT / "deploy" / "compose.yaml"],
    "citation-file-format": [ROOT / "CITATION.cff"],
}
"""Schemas that come with check-jsonschema, and the files that they describe."""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def example_workflow() -> Any:
    """Return the workflow that the page shows."""
    (text,) = re.findall(r"^```yaml\n(name: .*?)^```$", (ROOT / PAGE).read_text(encoding="utf-8"), re.M | re.S)
    return yaml.safe_load(text)


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every step of the workflows, of the page's example and of the action, with the name of its file."""
    for name, workflow in [*((path.name, read(path)) for path in WORKFLOWS), (PAGE, example_workflow())]:
        yield from ((name, step) for job in workflow["jobs"].values() for step in job["steps"])
    yield from (("action.yml", step) for step in read(ROOT / "action.yml")["runs"]["steps"])


def test_every_step_uses_a_version_or_runs_valid_shell() -> None:
    used = 0
    for name, step in steps():
        assert ("uses" in step) != ("run" in step), (name, step)
        if "uses" in step:
            used += 1
            at_version = re.fullmatch(r"\./(teco)?|[\w-]+/[\w.-]+@v\d[\w.]*", step["uses"])
            assert at_version, (name, step["uses"])
            continue
        # An expression in a script would be put in as text, so that a branch's name could run a command.
        assert "${{" not in step["run"], (name, step["run"])
        done = subprocess.run(PARSE, input=step["run"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, (name, done.stderr)
        for word in re.findall(r"\.ci/\w+", step["run"]):
            assert (ROOT / word).stat().st_mode & stat.S_IXUSR, (name, word)
    assert used >= 7


def test_every_variable_of_a_step_is_given() -> None:
    of_runner = {"GITHUB_OUTPUT", "GITHUB_REF_NAME", "GITHUB_STEP_SUMMARY"}
    for name, step in steps():
        set_here = set(re.findall(r"read -ra (\w+)", step.get("run", "")))
        needed = set(re.findall(r"\$\{?(\w+)", step.get("run", ""))) - of_runner - set_here
        assert needed <= set(step.get("env", {})), (name, needed)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_asks_for_few_rights_and_ends(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 120
        (checkout,) = (step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
        assert checkout["with"]["persist-credentials"] is False
    assert "pull_request_target" not in path.read_text(encoding="utf-8")


def test_inputs_of_the_action_are_declared_and_used() -> None:
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    declared = set(yaml.safe_load(text)["inputs"])
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == declared
    ours = [step for _, step in steps() if step.get("uses", "").startswith("./")]
    assert len(ours) == 2
    assert all(set(step.get("with", {})) <= declared for step in ours)
    listed = re.findall(r"^\| `([\w-]+)` \|", (ROOT / PAGE).read_text(encoding="utf-8"), re.M)
    assert declared <= set(listed)


def test_the_scripts_are_valid_shell() -> None:
    for name in ("run", "pull_request", "install_for_check"):
        assert subprocess.run([*PARSE, ROOT / ".ci" / name], check=False).returncode == 0
        if shellcheck := shutil.which("shellcheck"):
            assert subprocess.run([shellcheck, ROOT / ".ci" / name], check=False).returncode == 0


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_follow_their_published_schema(schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    jsonschema = pytest.importorskip("jsonschema")
    folder = resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    file = next((one for one in folder.iterdir() if one.name in (f"{schema}.json", f"{schema}.schema.json")), None)
    if file is None:
        pytest.skip(f"check-jsonschema has no schema {schema}")
    rules = json.loads(file.read_text(encoding="utf-8"))
    check = jsonschema.validators.validator_for(rules)(rules)
    for path in SCHEMAS[schema]:
        # `on:` is true in YAML 1.1; dates are texts in JSON.
        data = {"on" if key is True else str(key): value for key, value in read(path).items()}
        assert [error.message for error in check.iter_errors(json.loads(json.dumps(data, default=str)))] == [], path


def test_the_hook_runs_a_command_that_exists() -> None:
    (hook,) = read(ROOT / ".pre-commit-hooks.yaml")
    name, command, *flags = hook["entry"].split()
    assert (name, command) == ("teco", "check")
    args = _arguments(flags)
    assert args.structure
    assert args.changed_since == "HEAD"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (extra,) = re.findall(r"^check = (\[.*\])$", project, re.M)
    assert hook["additional_dependencies"] == json.loads(extra)
    for path in ("contrib/example/nlp/mine/README.md", "example/nlp/mine/data/a.txt", "model_config/model.yaml"):
        assert re.search(hook["files"], path)


def test_the_devcontainer_is_set_up_as_contributing_says() -> None:
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    dockerfile = (ROOT / ".devcontainer" / container["build"]["dockerfile"]).resolve()
    assert dockerfile == ROOT / "deploy" / "Dockerfile"
    assert (ROOT / ".devcontainer" / container["build"]["context"]).resolve() == ROOT
    text = dockerfile.read_text(encoding="utf-8")
    stage = re.search(rf"^FROM \S+ AS {container['build']['target']}\n(.*?)(?=^FROM |\Z)", text, re.M | re.S)
    assert stage is not None
    assert f"USER {container['remoteUser']}" in stage[1]
    set_up = re.search(r"^pip install .*$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M)
    assert set_up is not None
    assert container["postCreateCommand"].endswith(set_up[0])


def test_the_citation_is_that_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{citation["version"]}"' in project
    assert f'license = "{citation["license"]}"' in project
    assert {"cff-version", "message", "title", "authors"} <= set(citation)


def test_links_of_security_lead_somewhere() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    found = re.findall(r"\]\(([\w/.-]+)#?([\w-]*)\)", text)
    assert len(found) >= 4
    for file, heading in found:
        headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(encoding="utf-8"), re.M)
        anchors = {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in headings}
        assert not heading or heading in anchors, (file, heading)
