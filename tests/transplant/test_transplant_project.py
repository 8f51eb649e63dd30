"""``teco transplant`` on files and folders: output, errors, and files that stay unchanged."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import ROOT

pytest.importorskip("libcst")
pytest.importorskip("rich")

from engine import ConfigError, TecoInferError
from toolkit.commands.transplant import main

SCRIPT = "import torch\n\nx = torch.zeros(2).cuda()\nprint(x.sum().item())\n"
MOVED = SCRIPT.replace("import torch\n", "import torch\nimport torch_sdaa\n").replace("cuda", "sdaa")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "proj"
    (folder / "tools").mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    (folder / "data.bin").write_bytes(bytes(range(256)))
    return folder


def run(project: Path, *words: object) -> Path:
    """Migrate a project next to it; return the output folder."""
    out = project.parent / "out"
    main(["-i", str(project), "-o", str(out), *map(str, words)])
    return out / f"{(project if project.is_dir() else project.parent).name}_msft"


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO((folder / "change_list.csv").read_bytes().decode("utf-8-sig"), newline="")))


def test_a_project_is_copied_with_its_changes_and_lists(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(project)
    assert main(["-i", str(project), "-o", str(project.parent / "out")]) == 0
    out = project.parent / "out" / "proj_msft"
    assert (out / "train.py").read_text(encoding="utf-8") == MOVED
    assert set(files(out)) == {"train.py", "data.bin", "change_list.csv", "unsupported_op.xlsx", "msFmkTranspltlog.txt"}
    assert (out / "data.bin").read_bytes() == before["data.bin"]
    assert files(project) == before
    assert "2 changes in 1 file, nothing left to do" in capsys.readouterr().out
    assert "INFO train.py: 2 changes" in (out / "msFmkTranspltlog.txt").read_text(encoding="utf-8")


def test_the_list_of_changes_makes_the_output_of_the_input(project: Path) -> None:
    text = "import torch\r\nfrom torch.cuda import amp\r\nd = 'cuda:0'\r\nüber = x.cuda()\r\n"
    (project / "wide.py").write_bytes(text.encode())
    out = run(project)
    for name in ("train.py", "wide.py"):
        old = (project / name).read_bytes().decode()
        new, last = "", 0
        for row in [row for row in rows(out) if row["file"] == name]:
            start, end = int(row["start"]), int(row["end"])
            assert old[start:end] == row["old"]
            new, last = new + old[last:start] + row["new"], end
        assert new + old[last:] == (out / name).read_bytes().decode()


def test_a_second_run_changes_nothing(project: Path) -> None:
    out = run(project)
    again = run(out)
    assert (again / "train.py").read_bytes() == (out / "train.py").read_bytes()
    assert rows(again) == []


def test_a_file_alone(project: Path) -> None:
    out = run(project / "train.py")
    assert "data.bin" not in files(out)
    assert (out / "train.py").read_text(encoding="utf-8") == MOVED


def test_a_dry_run_prints_a_diff_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(project.parent)
    assert main(["-i", str(project), "--dry_run"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]
    assert "+import torch_sdaa" in out.splitlines()
    assert "(dry run)" in err
    assert files(project.parent) == before
    patch = subprocess.run(
        [shutil.which("patch") or "patch", "-p1", "--dry-run"],
        input=out,
        text=True,
        cwd=project,
        capture_output=True,
        check=False,
    )
    assert patch.returncode == 0, patch.stdout


def test_json_csv_and_a_page(project: Path) -> None:
    (project / "graph.py").write_text("import torch\ng = torch.cuda.CUDAGraph()\n", encoding="utf-8")
    found = {form: project.parent / f"report.{form}" for form in ("json", "csv", "html")}
    words = [word for form, path in found.items() for word in (f"--{form}", path)]
    run(project, *words)
    data = json.loads(found["json"].read_text(encoding="utf-8"))
    assert (data["schema_version"], data["todo"], len(data["changes"])) == (1, 1, 2)
    page = found["html"].read_text(encoding="utf-8")
    assert "torch.cuda.CUDAGraph" in page
    assert "the card does not capture graphs" in page
    assert ".cuda" not in found["csv"].read_text(encoding="utf-8").splitlines()[0]


def test_operators_without_a_kernel_are_a_sheet(project: Path) -> None:
    text = "import torch\nx = torch.topk(torch.zeros(3).cuda(), 1)\ntorch.cuda.nvtx.mark('a')\ny = torch.add(x, 1)\n"
    (project / "ops.py").write_text(text, encoding="utf-8")
    with zipfile.ZipFile(run(project) / "unsupported_op.xlsx") as archive:
        sheet = ElementTree.fromstring(archive.read("xl/worksheets/sheet1.xml"))  # noqa: S314 - of our own
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    found = [["".join(cell.itertext()) for cell in row] for row in sheet.iter(f"{space}row")]
    assert found[0] == ["file", "place", "operator", "on the card", "what to do"]
    assert [row[:4] for row in found[1:]] == [
        ["ops.py", "2", "torch.topk", "CPU fallback"],
        ["ops.py", "3", "torch.cuda.nvtx.mark", "missing"],
    ]


@pytest.mark.parametrize(
    "content",
    [
        codecs.BOM_UTF8 + SCRIPT.encode(),
        b"# -*- coding: latin-1 -*-\n# \xe9\n" + SCRIPT.encode(),
        SCRIPT.replace("\n", "\r\n").encode(),
        SCRIPT.replace("\n", "\r").encode(),
        SCRIPT.replace("\n\n", "\n\x0c\n").encode() + b"\n\n   \n\t# end",
    ],
)
def test_bytes_outside_of_changes_are_preserved(project: Path, content: bytes) -> None:
    (project / "train.py").write_bytes(content)
    new = (run(project) / "train.py").read_bytes()
    end = b"\r\n" if b"\r\n" in content else b"\r" if b"\r" in content else b"\n"
    assert new == content.replace(b"cuda", b"sdaa").replace(
        b"import torch" + end, b"import torch" + end + b"import torch_sdaa" + end
    )


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("old.py", b"import torch\nprint 'cuda'\n", "is Python 2"),
        ("old.py", b"try:\n    x.cuda()\nexcept IOError, e:\n    pass\n", "is Python 2"),
        ("bad.py", b"import torch\nx.cuda(\n", "does not parse"),
        ("bad.py", b"x = 'cuda\xff'\n", "is not UTF-8"),
        ("bad.py", b"x.cuda()\0\n", "does not parse"),
        ("bad.py", codecs.BOM_UTF16_LE + "x.cuda()\n".encode("utf-16-le"), "UTF-16"),
        ("bad.py", b"# coding: nonsense\nx.cuda()\n", "encoding"),
        ("deep.py", b"x.cuda(" + b"-" * 100_000 + b"1)\n", "nested too deeply"),
        ("deep.py", b"x.cuda(" + b"(" * 300 + b"1" + b")" * 300 + b")\n", "does not parse"),
        ("deep.py", b"x.cuda(" + b"1+" * 3000 + b"1)\n", "nested too deeply"),
        ("note.ipynb", b"{'cuda': 1}", "is not JSON"),
        ("note.ipynb", b'{"worksheets": []}', "format 4"),
    ],
)
def test_an_unreadable_file_is_reported_and_the_rest_migrated(
    project: Path, name: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / name).write_bytes(content)
    assert main(["-i", str(project), "-o", str(project.parent / "out"), "--json", str(project.parent / "a.json")]) == 1
    out = project.parent / "out" / "proj_msft"
    assert (out / name).read_bytes() == content
    assert (out / "train.py").read_text(encoding="utf-8") == MOVED
    lines = [
        row
        for row in json.loads((project.parent / "a.json").read_text(encoding="utf-8"))["rows"]
        if row["file"] == name
    ]
    assert len(lines) == 1
    assert said in lines[0]["reason"]
    assert lines[0]["fix"]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-i", "nowhere", "-o", "out"], "nowhere is neither a file nor a folder"),
        (["-i", "proj/data.bin", "-o", "out"], "data.bin is neither a Python file nor a notebook"),
        (["-i", "empty", "-o", "out"], "has no Python file or notebook"),
        (["-i", "other", "-o", "out"], "is not a training script"),
        (["-i", "proj"], "-o/--out"),
        (["-i", "proj", "-o", "proj"], "lies inside the input"),
        (["-i", "proj", "-o", "proj/train.py"], "is not a folder"),
        (["-i", "proj", "-o", "out", "-r", "nowhere.json"], "cannot be read"),
        (["-i", "proj", "-o", "out", "-r", "proj/train.py"], "is not JSON"),
        (["-i", "proj", "-o", "out", "--simlar"], "unrecognized arguments"),
        (["-i", "proj", "-o", "out", "-s", "2"], "take no value"),
        (["-i", "proj", "-o", "out", "distributed"], "-m/--main"),
        (["-i", "proj", "-o", "out", "distributed", "-m", "other.py"], "is not a Python file of the input"),
        (["-i", "proj", "-o", "out", "distributed", "-m", "train.py", "-t", "a b"], "is not a variable name"),
    ],
)
def test_invalid_arguments_are_errors(
    project: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.parent)
    Path("empty").mkdir()
    Path("other").mkdir()
    Path("other/plain.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(TecoInferError, match=said.replace("(", r"\(")):
        main(words)
    assert not Path("out").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(project: Path) -> None:
    (project.parent / "shut").mkdir(mode=0o500)
    with pytest.raises(TecoInferError, match="cannot be written"):
        main(["-i", str(project), "-o", str(project.parent / "shut")])


def test_an_existing_folder_needs_force_and_must_be_an_output(project: Path) -> None:
    out = run(project)
    with pytest.raises(ConfigError, match="--force"):
        run(project)
    (out / "stale.txt").write_text("", encoding="utf-8")
    assert "stale.txt" not in files(run(project, "--force"))
    (out / "msFmkTranspltlog.txt").unlink()
    with pytest.raises(ConfigError, match="not written by this command"):
        run(project, "--force")


def test_links_caches_and_pipes(project: Path) -> None:
    (project / "__pycache__").mkdir()
    (project / "__pycache__" / "train.pyc").write_bytes(b"x")
    (project / "same.py").symlink_to("train.py")
    (project / "outside").symlink_to(project.parent)
    os.mkfifo(project / "pipe")
    (project / "train.py").chmod(0o755)
    out = run(project)
    assert os.readlink(out / "same.py") == "train.py"
    assert not (out / "outside").exists()
    assert not (out / "pipe").exists()
    assert not (out / "__pycache__").exists()
    assert os.access(out / "train.py", os.X_OK)
    log = (out / "msFmkTranspltlog.txt").read_text(encoding="utf-8")
    assert "ERROR outside: is a link to" in log
    assert "ERROR pipe: is a device, a pipe or a socket" in log


def test_other_files_are_reported(project: Path) -> None:
    (project / "run.sh").write_text(
        "# CUDA\nCUDA_VISIBLE_DEVICES=0 python train.py --device cuda:0\n", encoding="utf-8"
    )
    (project / "kernel.cu").write_text("__global__ void f() {}\n", encoding="utf-8")
    (project / "requirements.txt").write_text("torch\nflash-attn==2\n", encoding="utf-8")
    log = (run(project) / "msFmkTranspltlog.txt").read_text(encoding="utf-8").splitlines()
    found = [line for line in log if line.startswith("WARNING")]
    assert found == [
        "WARNING kernel.cu:1: kernel.cu: CUDA kernels do not run on the card; write the operator with torch.library",
        "WARNING requirements.txt:2: flash-attn==2: a package of CUDA; remove it, or use its CPU build",
        "WARNING run.sh:2: CUDA_VISIBLE_DEVICES: the variable of CUDA's devices; use SDAA_VISIBLE_DEVICES",
        "WARNING run.sh:2: cuda:0: a device of CUDA; use sdaa for the card",
    ]


def test_a_started_script_imports_torch_sdaa_if_only_its_modules_change(project: Path) -> None:
    (project / "main.py").write_text("import train\n\nif __name__ == '__main__':\n    train\n", encoding="utf-8")
    assert (run(project) / "main.py").read_text(encoding="utf-8").startswith("import torch_sdaa\nimport train\n")


NOTEBOOK = """{
 "cells": [
  {"cell_type": "markdown", "metadata": {}, "source": ["cuda \\u00e9"]},
  {"cell_type": "code", "execution_count": 1, "metadata": {}, "outputs": [], "source": [
    "!nvidia-smi\\n",
    "import torch"
   ]},
  {"cell_type": "code", "execution_count": null, "metadata": {"a": "cuda"}, "outputs": [], "source": "%time x = torch.zeros(1).cuda()  # \\u00e9\\ny = torch.zeros(1).cuda()"},
  {"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": ["print 'cuda'\\n"]},
  {"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [], "source": ["%%bash\\n", "nvidia-smi"]}
 ],
 "metadata": {"kernelspec": {"language": "python"}}, "nbformat": 4,
 "nbformat_minor":   5 }"""  # noqa: E501


def test_a_notebook_changes_in_its_cells_only(project: Path) -> None:
    (project / "note.ipynb").write_text(NOTEBOOK, encoding="utf-8")
    out = run(project)
    new = (out / "note.ipynb").read_text(encoding="utf-8")
    expected = NOTEBOOK.replace('"import torch"', '"import torch\\n",\n    "import torch_sdaa"')
    assert new == expected.replace("y = torch.zeros(1).cuda()", "y = torch.zeros(1).sdaa()")
    assert "ERROR note.ipynb:cell 4: is Python 2" in (out / "msFmkTranspltlog.txt").read_text(encoding="utf-8")


def test_a_cell_with_magic_lines(project: Path) -> None:
    cells = [
        "import torch\nfiles = !ls\ntorch.zeros?\nx = torch.zeros(1).cuda()\n",
        "%%time\ny = (1\n     % x.cuda())\n",
    ]
    sources = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": cell} for cell in cells]
    (project / "note.ipynb").write_text(json.dumps({"cells": sources, "metadata": {}, "nbformat": 4}), encoding="utf-8")
    new = json.loads((run(project) / "note.ipynb").read_text(encoding="utf-8"))["cells"]
    assert [cell["source"] for cell in new] == [
        cells[0].replace("torch\n", "torch\nimport torch_sdaa\n", 1).replace("cuda", "sdaa"),
        cells[1].replace("cuda", "sdaa"),
    ]


def test_an_invalid_rule_is_reported_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = project.parent / "rules.json"
    rules.write_text('{"rules": {"FuncNameModifyRule": [{"old_nam": "a", "new_name": "b"}]}}', encoding="utf-8")
    assert main(["-i", str(project), "-o", str(project.parent / "out"), "-r", str(rules)]) == 1
    out, err = capsys.readouterr()
    assert (out + err).count("did you mean 'old_name'?") == 1


@pytest.mark.slow
def test_by_its_other_names(project: Path) -> None:
    for number, words in enumerate((["-m", "transplant"], [str(ROOT / "transplant" / "ms_fmk_transplt.py")])):
        command = [sys.executable, *words, "-i", str(project), "-o", f"out{number}"]
        done = subprocess.run(
            command,
            cwd=project.parent,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT) if number == 0 else ""},
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert (project.parent / f"out{number}" / "proj_msft" / "train.py").read_text(encoding="utf-8") == MOVED


PLACELESS = "import torch\n\nmodel = torch.nn.Linear(2, 1)\nloss = model(torch.ones(1, 2)).sum()\nloss.backward()\n"


@pytest.mark.parametrize(
    ("text", "code", "lines"),
    [
        (PLACELESS, 1, ["5"]),
        (PLACELESS.replace("model(", "torch.compile(model)("), 1, ["5"]),
        (PLACELESS.replace("loss.backward()", "print(loss)"), 0, []),
        (PLACELESS.replace("import torch\n", "import torch\nimport torch_sdaa\n"), 0, []),
        (PLACELESS.replace("ones(1, 2)", "ones(1, 2, device=torch.accelerator.current_accelerator())"), 0, []),
        ("from accelerate import Accelerator\nAccelerator().backward(loss)\n", 0, []),
    ],
)
def test_a_script_that_would_train_on_the_cpu_is_reported(
    tmp_path: Path, text: str, code: int, lines: list[str]
) -> None:
    script, report = tmp_path / "train.py", tmp_path / "report.json"
    script.write_text(text, encoding="utf-8")
    assert main(["-i", str(script), "-o", str(tmp_path / "out"), "--json", str(report)]) == code
    found = json.loads(report.read_text(encoding="utf-8"))
    assert [row["place"] for row in found["rows"] if row["kind"] == "to do"] == lines


def test_a_script_whose_modules_select_the_device_is_not_reported(project: Path) -> None:
    (project / "train.py").write_text(
        PLACELESS + "if __name__ == '__main__':\n    import tools.work\n", encoding="utf-8"
    )
    (project / "tools" / "work.py").write_text(SCRIPT, encoding="utf-8")
    out = run(project)
    assert (out / "train.py").read_text(encoding="utf-8").startswith("import torch\nimport torch_sdaa\n")
    assert "trains on the CPU" not in (out / "msFmkTranspltlog.txt").read_text(encoding="utf-8")
