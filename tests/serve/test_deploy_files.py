"""The Dockerfile and the compose file: their commands are run without Docker, and the image is built where one is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from served import serving
from support import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
SERVE = COMPOSE["services"]["serve"]


def test_files_that_are_copied_and_mounted_exist() -> None:
    assert (ROOT / "deploy" / SERVE["build"]["context"]).resolve() == ROOT
    assert (ROOT / SERVE["build"]["dockerfile"]).is_file()
    for volume in COMPOSE["services"]["prometheus"]["volumes"]:
        assert (DEPLOY / volume.split(":")[0]).is_file()
    assert COMPOSE["secrets"]["token"]["file"] == "./token"
    assert "deploy/token" in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert "deploy/token" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_extras_exist() -> None:
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', DOCKERFILE)
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert all(re.search(rf"^{name} = \[", project, re.MULTILINE) for name in extras.split(","))


def test_ports_are_those_of_the_command() -> None:
    entry = json.loads(re.findall(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[0])
    ports = {entry[entry.index(flag) + 1] for flag in ("--http_port", "--grpc_port")}
    assert set(re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)[0].split()) == ports
    assert {port.rpartition(":")[2] for port in SERVE["ports"]} == ports
    assert all(port.startswith("127.0.0.1:") for service in COMPOSE["services"].values() for port in service["ports"])
    (job,) = PROMETHEUS["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"serve:{entry[entry.index('--http_port') + 1]}"]


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path) -> None:
    """The command of the compose file answers the health check, and Prometheus' request with the token."""
    for package in ("fastapi", "uvicorn", "grpc", "prometheus_client", "tokenizers"):
        pytest.importorskip(package)
    secret = tmp_path / "token"
    secret.write_text("abc\n")
    words = [str(secret) if word == "/run/secrets/token" else word for word in SERVE["command"]]
    with serving(*words, grpc=True) as server:
        (health,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
        command = [word.replace(":8000/", f":{server.http}/") for word in json.loads(health)]
        assert subprocess.run([sys.executable, *command[1:]], check=False).returncode == 0
        (job,) = PROMETHEUS["scrape_configs"]
        found = server.ask(job["metrics_path"], authorization=f"Bearer {secret.read_text().strip()}")
        assert b"teco_model_ready" in found.body


@pytest.mark.slow
@pytest.mark.long
def test_the_image_is_built(tmp_path: Path) -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        pytest.skip("no Docker daemon")
    done: Any = subprocess.run(
        [docker, "build", "-f", DEPLOY / "Dockerfile", "-t", "teco-serve-test", ROOT], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
