"""Training and export scripts on a machine without torch: one line that says what to install."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from forked import helps
from support import ROOT

OURS = re.compile(r"^(from|import) (contrib|engine|tecoexec|toolkit|utils)\b", re.MULTILINE)
"""What the scripts of CUDA's users, in example/training, do not import: they are moved as they are."""

SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("contrib", "example")
    for path in (ROOT / folder).glob("**/*.py")
    if not path.name.startswith("example_")
    and "__main__" in (text := path.read_text(encoding="utf-8"))
    and OURS.search(text)
    and ("ArgumentParser" in text or "needed(__file__)" in text)  # the others would do their work at --help
)
MISSING = (
    "torch", "torchvision", "onnxsim", "sklearn", "skimage", "tokenizers", "safetensors", "timm", "gymnasium", "cv2",
)  # fmt: skip
AS_LISTED = {"cv2": "opencv-python-headless", "sklearn": "scikit-learn", "skimage": "scikit-image"}


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[int, str]]:
    return helps(SCRIPTS, MISSING)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_script_without_packages_names_the_install_command(script: str, ended: dict[str, tuple[int, str]]) -> None:
    code, said = ended[script]
    assert "Traceback" not in said
    if code == 0:
        assert "usage: " in said
        return
    told = re.fullmatch(
        r"error: \w+\.py needs the package (\w+), which is not installed; "
        r'run: pip install -c "constraints.txt" -r "(.+)"\n',
        said,
    )
    assert code == 2
    assert told, said
    listed = (ROOT / told[2]).read_text(encoding="utf-8")
    assert told[2] == f"{Path(script).parent.as_posix()}/requirements.txt"
    assert re.search(rf"^{AS_LISTED.get(told[1], told[1])}\b", listed, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.long
def test_there_are_scripts_of_both_kinds(ended: dict[str, tuple[int, str]]) -> None:
    assert {code for code, _ in ended.values()} == {0, 2}
