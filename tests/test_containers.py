"""deploy/Dockerfile: its stages, and what their commands do, run without a container in new virtual environments."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support import ROOT

DOCKERFILE = ROOT / "deploy" / "Dockerfile"


class Stage(NamedTuple):
    """The image that a stage starts from, and its instructions: a word, and the text after it."""

    base: str
    instructions: list[tuple[str, str]]

    def of(self, word: str) -> list[str]:
        return [text for name, text in self.instructions if name == word]


def stages() -> dict[str, Stage]:
    found: dict[str, Stage] = {}
    text = re.sub(r"\\\n\s*", " ", DOCKERFILE.read_text(encoding="utf-8"))
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stage = found[name] = Stage(base, [])
        elif found and line and not line.startswith("#"):
            stage.instructions.append((word, rest))
    return found


def test_the_stages_are_those_of_the_page() -> None:
    found = stages()
    page = (ROOT / "docs/how-to/containers_and_ci.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)`", page.partition("### ")[0], re.M)
    assert set(listed) <= set(found)
    assert list(found)[-1] == "serve"  # what `docker build` makes without --target
    for name in ("core", "serve", "dev"):
        assert any(text == "teco" for text in found[name].of("USER")), name
    assert {found[name].base for name in ("core", "serve")} == {"base"}


def test_every_copied_path_is_in_the_context() -> None:
    ignored = [line for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line]
    for name, stage in stages().items():
        for text in stage.of("COPY"):
            if "--from=" in text:
                source = re.fullmatch(r"--from=(\w+) /opt/zoo/(\S+) (\S+)", text)
                assert source is not None
                assert source[1] in stages()
                assert source[2] == source[3]
                continue
            for path in text.split()[:-1]:
                assert (ROOT / path).exists(), (name, path)
                assert not any(fnmatch.fnmatch(path, pattern) for pattern in ignored), (name, path)


def context(folder: Path) -> Path:
    """Copy the build context: the files of the repository without those that .dockerignore names."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("the tree is not a git repository")
    ignored = [line for line in (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line]
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not any(name.startswith(f"{one}/") or fnmatch.fnmatch(name, one) for one in ignored):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def new_environment(folder: Path) -> dict[str, str]:
    """Create a virtual environment, and return the variables with which a shell uses it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_EXTRA"))}
    return {**kept, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(folder)}


def shell(text: str, folder: Path, environment: dict[str, str]) -> str:
    command = ["sh", "-c", text]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.long
def test_the_commands_of_the_images_run(tmp_path: Path) -> None:
    """The build stage compiles the extension; core, core with an extra, and serve use it without a compiler."""
    found, build, zoo = stages(), context(tmp_path / "build"), context(tmp_path / "zoo")
    environment = new_environment(tmp_path / "venv")
    for command in found["build"].of("RUN"):
        shell(command, build, environment)
    native = Path("tecoinfer_modelzoo/native")
    built = {file.name for file in (build / native).glob("_*.so")}
    assert len(built) == (2 if shutil.which("gcc") else 0)
    for name in (native, Path("wheels")):
        shutil.copytree(build / name, zoo / name, dirs_exist_ok=True)
    shutil.rmtree(build)

    slim = {**environment, "CC": "/nonexistent/cc"}
    (install,) = found["core"].of("RUN")
    for extras in ("", "check"):
        shell(install, zoo, {**slim, "EXTRAS": extras})
    own = tmp_path / "own"
    own.mkdir()
    for folder in (zoo, own):
        assert ("C extension" in shell("python -m engine", folder, slim)) == bool(built)
    command = " ".join(json.loads(found["core"].of("CMD")[0]))
    assert "eval_metric 0.994444" in shell(command, zoo, slim)
    assert "structure only" in shell("teco check digits --structure", zoo, slim)
    shell("teco new nlp mine", own, slim)
    assert "structure only" in shell("teco check mine --structure", own, slim)
    assert "torch" not in shell("pip list", zoo, slim)

    (install,) = found["serve"].of("RUN")
    shell(install, zoo, slim)
    assert {file.name for file in (zoo / native).glob("_*.so")} == built  # kept though nothing could be compiled
    entry = " ".join(json.loads(found["serve"].of("ENTRYPOINT")[0]))
    assert "Serve models over the network" in shell(f"{entry} --help", zoo, slim)
