"""``docs/how-to/serving.md``: its commands run one after the other, and print what the page shows."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions, shown
from zoo_copy import with_teco

PAGE = (ROOT / "docs" / "how-to" / "serving.md").read_text(encoding="utf-8")
COMMANDS = [action.text for action in actions(PAGE) if action.kind == "bash"]
PAUSE = "\necho '=====' \n"


def test_the_paths_of_the_page_are_those_of_the_server() -> None:
    pytest.importorskip("fastapi")
    source = (ROOT / "serve" / "http" / "app.py").read_text(encoding="utf-8")
    paths = set(re.findall(r'@app\.\w+\("([^"]+)"', source))
    listed = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    for path in paths - {"/", "/static/{name}"}:
        last = path.replace("{name}", "NAME").replace("/versions/{version}", "").rpartition("/")[2]
        assert last in listed, path


@pytest.mark.slow
def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """One shell runs all of them: the server of the first is stopped by the last."""
    for package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "tokenizers"):
        pytest.importorskip(package)
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")
    (tmp_path / "example").symlink_to(ROOT / "example", target_is_directory=True)
    environment = {**with_teco(ROOT, tmp_path / "bin"), "OMP_NUM_THREADS": "1"}
    end = "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"  # of the server, also where a command fails
    words = ["bash", "-euo", "pipefail", "-c", end + PAUSE.join(COMMANDS)]
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        start_new_session=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    parts = done.stdout.split("=====")
    assert len(parts) == len(COMMANDS)
    text = shown(PAGE, "text")
    assert not [line for line in parts[0].splitlines() if line and line not in text]
    answers = [json.loads(one)["answers"][0] for one in re.findall(r'\{"model_name.*?\}\}', parts[1].replace("\n", ""))]
    assert answers[0]["answer"][0]["label"] == "7"
    assert answers[1]["answer"][0]["label"] == "French"
    assert answers[2] == {**answers[0], "name": "0081.png"}
    assert json.loads(parts[2])["outputs"][0]["shape"] == [1, 10]
    assert parts[3].strip().endswith("data: [DONE]")
    assert parts[4].split() == ["1.95-3.42", "s", "4.42-4.89", "s"]  # as stream.py of the model prints them
    assert "teco_requests_total" in parts[5]
    assert not [line for line in parts[6].splitlines() if line and "written" not in line and line not in text]
    assert os.path.isfile(tmp_path / "models/digits/1/model.onnx")
