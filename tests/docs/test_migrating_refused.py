"""``docs/how-to/migrating.md``, section 12: whatever it lists as refused is done here, and said as the page has it."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest
from support import ROOT, RunPython

pytest.importorskip("torch")
pytest.importorskip("libcst")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PAGE = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+?) \| .+? \| .+? \|$", PAGE.split("\n## 12. ")[1].split("\n## 13. ")[0], re.MULTILINE)[1:]
SAID = [text for row in ROWS for text in re.findall(r"`([^`]+)`", row) if text != "!pip"]

MOVE = ("-m", "transplant", "-i", "mine", "-o", "out")
TRAIN = "import torch\nx = torch.zeros(1).cuda()\n"
MOVED = "import torch\nimport torch_sdaa\nx = torch.zeros(1).sdaa()\n"
ALIKE = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29871"}
JOIN = "import torch, torch_sdaa\ntorch.distributed.init_process_group('tccl')\n"
RANK = "import os\n" + JOIN.replace("\n", "\nrank = int(os.environ['RANK'])\ntorch.sdaa.set_device(rank)\n", 1)


def pattern(text: str) -> str:
    """Return the expression for a line of the page, in which ``...`` stands for anything."""
    return ".*".join(map(re.escape, text.split("...")))


def said_as_on_the_page(text: str, begin: str) -> None:
    """Check that one line of a text is what the page has, in the cell of a row that contains these words."""
    [shown] = [one for one in SAID if begin in one]
    found = [line for line in text.splitlines() if re.search(pattern(shown), line)]
    assert found, f"{shown}\n{text}"


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Return a folder with a project to move."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    return folder


def test_unreadable_files_and_cells_without_python(mine: Path, run_python: RunPython) -> None:
    (mine / "old.py").write_text("import torch\nprint 'cuda'\n", encoding="utf-8")
    (mine / "bad.py").write_text("import torch\nx.cuda(\n", encoding="utf-8")
    cells = [["!pip install torch\n", TRAIN], ["%%bash\n", "nvidia-smi\n"], ["print 'cuda'\n"]]
    book = {
        "cells": [
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": cell}
            for cell in cells
        ],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    (mine / "note.ipynb").write_text(json.dumps(book), encoding="utf-8")
    done = run_python(*MOVE, cwd=mine.parent, COLUMNS="300")
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    out = mine.parent / "out" / "mine_msft"
    said_as_on_the_page((out / "msFmkTranspltlog.txt").read_text(encoding="utf-8"), "is Python 2")
    said_as_on_the_page((out / "msFmkTranspltlog.txt").read_text(encoding="utf-8"), "does not parse")
    assert (out / "train.py").read_text(encoding="utf-8") == MOVED
    assert "!pip install torch" in (out / "note.ipynb").read_text(encoding="utf-8")
    assert re.search(r"note\.ipynb:cell 3", (out / "msFmkTranspltlog.txt").read_text(encoding="utf-8"))
    assert re.search(r"note\.ipynb +cell 3 ", done.stdout + done.stderr), "a notebook's cell is in the table"


def test_a_folder_that_is_there_and_one_that_cannot_be_written(mine: Path, run_python: RunPython) -> None:
    assert run_python(*MOVE, cwd=mine.parent).returncode == 0
    again = run_python(*MOVE, cwd=mine.parent, COLUMNS="300")
    assert again.returncode == 2
    said_as_on_the_page(again.stderr, "exists; use")
    nowhere = run_python(*MOVE[:-1], "/proc/nowhere", cwd=mine.parent, COLUMNS="300")
    assert nowhere.returncode == 2
    said_as_on_the_page(nowhere.stderr, "cannot be written")


def test_a_script_that_is_none_and_a_typo_in_a_rule(mine: Path, run_python: RunPython) -> None:
    rules = {"rules": {"FuncNameModifyRul": [{"old_name": "a", "new_name": "b"}]}}
    (mine.parent / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    done = run_python(*MOVE, "-r", "rules.json", cwd=mine.parent, COLUMNS="300")
    said_as_on_the_page(done.stdout + done.stderr, "is not a kind of rule")
    assert done.returncode == 1
    assert (mine.parent / "out" / "mine_msft" / "train.py").read_text(encoding="utf-8") == MOVED
    (mine / "train.py").write_text("x = 1\n", encoding="utf-8")
    none = run_python(*MOVE, "--force", cwd=mine.parent, COLUMNS="300")
    assert none.returncode == 2
    said_as_on_the_page(none.stderr, "is not a training script")


def test_names_that_the_import_cannot_redirect(run_python: RunPython) -> None:
    script = "import torch\nfrom torch_sdaa.contrib import transfer_to_sdaa\ntorch.cuda.CUDAGraph()\n"
    done = run_python("-c", script)
    assert done.returncode == 1
    said_as_on_the_page(done.stderr.splitlines()[-1], "cannot redirect")


@pytest.mark.long
def test_ranks_that_cannot_join(run_python: RunPython) -> None:
    joins = (
        ({**ALIKE, "MASTER_ADDR": "no-such-host.invalid"}, "MASTER_ADDR"),
        ({**dict.fromkeys(ALIKE, ""), "RANK": "0"}, "WORLD_SIZE is not set"),
    )
    for environment, words in joins:
        done = run_python("-c", JOIN, **environment)
        assert done.returncode == 1
        said_as_on_the_page(done.stderr.splitlines()[-1], words)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        done = run_python("-c", JOIN, **{**ALIKE, "MASTER_PORT": str(taken.getsockname()[1])})
    assert done.returncode == 1
    said_as_on_the_page(done.stderr.splitlines()[-1], "is in use")


@pytest.mark.long
def test_ranks_that_are_lost_or_hold_other_networks(tmp_path: Path, run_python: RunPython) -> None:
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "script.py")
    script = tmp_path / "script.py"
    script.write_text(
        RANK + "x = torch.ones(1).sdaa()\ntorch.distributed.all_reduce(x)\n"
        "if rank:\n    os._exit(0)\ntorch.distributed.all_reduce(x)\n",
        encoding="utf-8",
    )
    lost = run_python(*start, cwd=tmp_path)
    assert lost.returncode == 1
    said_as_on_the_page(lost.stderr, "lost rank 1")
    script.write_text(
        RANK + "model = torch.nn.Linear(4, 4 + rank).sdaa()\n"
        "torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])\n",
        encoding="utf-8",
    )
    other = run_python(*start, cwd=tmp_path)
    assert other.returncode == 1
    said_as_on_the_page(other.stderr, "models differ")
    assert "'weight' is 4x4 float32 on rank 0 and 5x4 float32 on rank 1" in other.stderr


def test_every_row_of_the_table_is_tested_above() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    words = re.findall(r'said_as_on_the_page\([^\n]*, "([^"]+)"\)|, "(MASTER_ADDR|WORLD_SIZE is not set)"\),', text)
    done = {one or other for one, other in words}
    assert len(ROWS) == 12
    assert not [said for said in SAID if not any(word in said for word in done)]
