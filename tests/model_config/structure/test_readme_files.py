"""Commands of a README name files that are there, or whose origin it describes; sample data are not documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from support import ROOT

from model_config.cases.config import CONFIGS, Case, Command, read_cases
from model_config.results import Finding
from model_config.structure import check_structure
from model_config.structure.data_files import sample_data
from model_config.structure.readme_files import check_files
from model_config.structure.source import Folder

RUN_DIR = "example/images/net"

README = """\
# Net

## 1. 模型概述

A network.

### 2.3 获取ONNX文件

```bash
python export_onnx.py --arch other
```

```
made_dyn.onnx: largest relative error 1e-7
```

It writes `stale_dyn.onnx`.

### 2.4 获取数据集

Put the images into `data/val`; `images/cat.png` is here.

### 2.5 启动推理

```bash
python example_single_batch.py COMMAND
```
"""


def folder_of(root: Path, command: str, *files: str, ckpt: str = "net_float16_dyn.onnx") -> Folder:
    """Return a model's folder whose README has this command, and these further files."""
    home = root / RUN_DIR
    for name in ("example_single_batch.py", "export_onnx.py", *files):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("", encoding="utf-8")
    (home / "README.md").write_text(README.replace("COMMAND", command), encoding="utf-8")
    steps = (Command("export", "export_onnx.py", {}), Command("single", "example_single_batch.py", {"ckpt": ckpt}))
    return Folder(Case("net", RUN_DIR, steps, root / "model.yaml"), root)


KNOWN = {
    "a form of the case's model": "--ckpt net_dyn.onnx",
    "exported by a command": "--ckpt other_float16_dyn.onnx",
    "in the output of the export": "--ckpt made_dyn.onnx",
    "there": "--data_path images/cat.png",
    "a folder that is there": "--data_path images",
    "in a folder to be filled": "--data_path data/val/0.png",
    "from the root": f"--data_path {RUN_DIR}/images/cat.png",
    "of a package": "--ckpt fetch:minilm/model.onnx",
    "stands for a path": "--ckpt path/to/yours.onnx --data_path <folder>",
    "absolute": "--data_path /data/imagenet",
    "several by name": "--ckpt a=net.onnx b=net_dyn.onnx",
    "an output": "--save drawn --json result.json",
    "none": "--target sdaa",
}

UNKNOWN = {
    "another model": ("--ckpt template_dyn.onnx", "template_dyn.onnx"),
    "a sentence of a template": ("--ckpt stale_dyn.onnx", "stale_dyn.onnx"),
    "an image that was removed": ("--data_path images/circle_0.png", "images/circle_0.png"),
    "data that nothing describes": ("--data_path samples/a.wav", "samples/a.wav"),
    "after =": ("--ckpt=template.onnx", "template.onnx"),
    "one of several": ("--ckpt a=net.onnx b=template.onnx", "template.onnx"),
}


@pytest.mark.parametrize("command", KNOWN.values(), ids=KNOWN)
def test_known_files_are_no_finding(command: str, tmp_path: Path) -> None:
    assert list(check_files(folder_of(tmp_path, command, "images/cat.png"))) == []


@pytest.mark.parametrize(("command", "name"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_files_are_found_at_their_command(command: str, name: str, tmp_path: Path) -> None:
    (found,) = check_files(folder_of(tmp_path, command, "images/cat.png"))
    assert (found.file, found.line) == (f"{RUN_DIR}/README.md", 26)
    assert name in found.message
    assert found.fix


def test_an_export_in_the_same_section_makes_the_file(tmp_path: Path) -> None:
    command = "--ckpt variant_dyn.onnx\npython export_onnx.py --out ."
    assert list(check_files(folder_of(tmp_path, command, "images/cat.png"))) == []


def test_scripts_of_other_models_are_not_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "--target sdaa")
    text = folder.path / "README.md"
    text.write_text(README.replace("python example_single_batch.py COMMAND", "python ../b/c.py --ckpt x.onnx"), "utf-8")
    assert list(check_files(Folder(folder.case, tmp_path))) == []


def test_every_readme_of_the_zoo_passes() -> None:
    cases, _ = read_cases([ROOT / name for name in CONFIGS], ROOT)
    assert len(cases) > 50
    found = {str(one) for case in cases for one in check_files(Folder(case, ROOT))}
    assert found == set()


# ---------------------------------------------------------------------------------------------------------------- data


def broken(root: Path, *names: str) -> list[Finding]:
    """Return the findings in these files of the folder."""
    folder = folder_of(root, "--target sdaa")
    wanted = {f"{RUN_DIR}/{name}" for name in names}
    return [one for one in check_structure(folder.case, root) if one.file in wanted]


NOT_PYTHON, LINK = "def broken(:\n  eval('1')\n", "[gone](nowhere.md)\n"


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / RUN_DIR / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_sample_data_are_neither_documents_nor_code(tmp_path: Path) -> None:
    names = ["data/corpus/a.md", "data/corpus/b.py", "data/Odd-Name.py"]
    write(tmp_path, {names[0]: LINK, names[1]: NOT_PYTHON, names[2]: "print(1)\n"})
    assert broken(tmp_path, *names) == []


def test_documents_about_data_and_other_folders_are_read(tmp_path: Path) -> None:
    names = ["data/README.md", "notes/a.md", "tools/b.py"]
    write(tmp_path, {names[0]: LINK, names[1]: LINK, names[2]: NOT_PYTHON})
    assert {one.file.removeprefix(f"{RUN_DIR}/") for one in broken(tmp_path, *names)} == set(names)


@pytest.mark.parametrize("user", ["script", "readme", "step"])
def test_code_among_the_data_is_read(user: str, tmp_path: Path) -> None:
    write(tmp_path, {"data/make.py": NOT_PYTHON})
    folder = folder_of(tmp_path, "--target sdaa")
    if user == "script":
        (folder.path / "example_single_batch.py").write_text("from data.make import x\n", encoding="utf-8")
    if user == "readme":
        (folder.path / "README.md").write_text("# N\n```bash\npython data/make.py\n```\n", encoding="utf-8")
    steps: Sequence[Command] = (Command("valid", "data/make.py", {}),) if user == "step" else folder.case.steps
    case = Case("net", RUN_DIR, tuple(steps), folder.case.source)
    assert "data/make.py" not in {name.removeprefix(f"{RUN_DIR}/") for name in sample_data(Folder(case, tmp_path))}
    rules = {one.rule for one in check_structure(case, tmp_path) if one.file.endswith("data/make.py")}
    assert "syntax" in rules


def test_the_folder_of_a_data_path_is_data(tmp_path: Path) -> None:
    write(tmp_path, {"pages/a/b.md": LINK, "other/b.md": LINK})
    step = Command("valid", "example_single_batch.py", {"data_path": "pages/a"})
    folder = folder_of(tmp_path, "--target sdaa")
    case = Case("net", RUN_DIR, (step,), folder.case.source)
    assert sample_data(Folder(case, tmp_path)) == {f"{RUN_DIR}/pages/a/b.md"}
