"""The commands of the pages that no other test follows: each ends with exit code 0 in a copy of the zoo."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from support import ROOT
from zoo_copy import copy_zoo, with_teco

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.torch]

START: dict[str, str] = {
    "README.md": ".",
    "contrib/README.md": ".",
    "docs/reference/classification_models.md": ".",
    "docs/how-to/containers_and_ci.md": ".",
    "docs/reference/data.md": ".",
    "docs/reference/engines.md": ".",
    "docs/how-to/evaluation.md": ".",
    "docs/reference/model_sweep.md": ".",
    "docs/how-to/models.md": ".",
    "docs/how-to/video.md": ".",
    "docs/reference/nlp.md": "example/nlp/bert_qa",
    "docs/reference/ocr.md": "example/ocr/ppocr_v4",
    "docs/reference/performance.md": ".",
    "docs/reference/reinforcement.md": ".",
    "docs/explanation/scaling.md": ".",
    "docs/reference/speech.md": ".",
    "docs/explanation/tecoexec.md": ".",
    "docs/reference/training_options.md": ".",
    "docs/how-to/training_performance.md#7": ".",
    "model_config/README.md": ".",
}
"""Each page, or a numbered section of it, and the folder in which its first command is given."""

LEFT_OUT = {
    r"^(python -m )?pip install": "installs what the tests have",
    r"^teco check( +#|$)| --changed.since| --config ": "the whole zoo, which suite `check` runs, or a branch",
    r"^teco check my_case": "a case of the reader's",
    r"^teco-smi --watch": "runs until it is stopped; tests/engine/sdaa has tests of it",
    r" --from gt_all": "an archive that was downloaded elsewhere",
    r"resnet50_dyn|--case resnet50|--arch resnet50": "minutes and 100 MB; tests/tecoexec runs the same on small models",
    r"^mpirun|mpirun ": "tests/test_mpirun.py runs it where Open MPI is",
    r"--launcher ray": "tests/test_ray.py",
    r"dev-v2.0.json|talk.wav|--data_path (texts.jsonl|prompts.txt)|model\.onnx": "files of the reader's",
    r"benchmarks/(throughput|end_to_end|model_sweep|scaling|scale/|tools/fix_runs|tools/compare)": "minutes; .ci/long",
    r"camera:0": "needs a camera; tests/utils/video tests the message without one",
    r"benchmarks/tools/video_speed": "minutes; tests/benchmarks/test_video_speed.py runs a short one",
    r"--batch 512": "needs the memory of a large machine",
    r"--arch vgg16": "half a gigabyte of random weights",
}
"""Commands that are not run here, and why."""


def commands(page: str) -> list[str]:
    """Return the command lines of the ``bash`` blocks of a page or section, continued lines put together."""
    name, _, number = page.partition("#")
    text = (ROOT / name).read_text(encoding="utf-8")
    if number:
        text = text.split(f"\n## {number}. ")[1].split("\n## ")[0]
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("page", START)
def test_the_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    zoo = copy_zoo(tmp_path / "zoo")
    for name in ("benchmarks", "tecoexec"):
        os.symlink(ROOT / name, zoo / name)
    environment = with_teco(zoo, tmp_path / "bin")
    folder = zoo / START[page]
    for line in commands(page):
        if any(re.search(pattern, line) for pattern in LEFT_OUT):
            continue
        if line.startswith("cd "):
            folder = zoo / line.split()[1]
            continue
        words = ["bash", "-euo", "pipefail", "-c", line]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{page}: {line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


def test_every_page_with_commands_is_run_by_a_test() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    pages = [path for path in (ROOT / "docs").rglob("*.md") if commands(path.relative_to(ROOT).as_posix())]
    assert len(pages) > 20
    names = [path.name.replace(".zh-CN", "") for path in pages]  # test_twins.py compares the commands of translations
    assert [name for name in names if name not in sources] == []
