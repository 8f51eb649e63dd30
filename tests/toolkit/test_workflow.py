"""The workflow of pull requests is valid; the action that it calls has tests of its own."""

from __future__ import annotations

import re

import yaml
from support import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "check.yml").read_text(encoding="utf-8"))
STEPS = WORKFLOW["jobs"]["check"]["steps"]


def test_checkout_has_full_history() -> None:
    (checkout,) = (step for step in STEPS if step.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["fetch-depth"] == 0
    assert WORKFLOW[True] == {"pull_request": {"branches": ["main"]}}  # YAML 1.1 reads the key `on` as true


def test_steps_are_pinned_actions_or_the_own_action() -> None:
    for step in STEPS:
        assert "run" not in step
        assert step["uses"] == "./" or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
    assert WORKFLOW["permissions"] == {"contents": "read"}


def test_the_own_action_has_the_inputs_and_the_extras() -> None:
    (own,) = (step["with"] for step in STEPS if step["uses"] == "./")
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert set(own) <= set(action["inputs"])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    missing = [extra for extra in own["extras"].split(",") if not re.search(rf"^{extra} = \[", project, re.MULTILINE)]
    assert missing == []
