"""``distributed``: what is written around a model, its data, its printing and its saving."""

# ruff: noqa: E501 - a case is a line

from __future__ import annotations

from pathlib import Path

import pytest
from support import ROOT
from walkthrough import actions

pytest.importorskip("libcst")
pytest.importorskip("rich")

from toolkit.commands.transplant import main
from transplant.edits import TODO, apply
from transplant.migrate import Options, migrate
from transplant.script import Script

PAGE = (ROOT / "docs" / "transplant.md").read_text(encoding="utf-8")
SCRIPT = next(action.text for action in actions(PAGE) if action.where == "project/train.py")
HEAD = "import torch\nfrom torch.utils.data import DataLoader\n"
WRAP = "torch.nn.parallel.DistributedDataParallel(model, device_ids=[torch.sdaa.current_device()])"
MOVE_AND_WRAP = WRAP.replace("(model,", "(model.sdaa(),")
FIRST = 'if os.environ.get("RANK", "0") == "0": '


def moved(text: str, target: str = "model") -> tuple[list[str], Script]:
    """Return the lines of a script for several cards; a second run changes nothing."""
    script = migrate(text, Options(target=target), main=True)
    new = apply(text, script.edits)
    compile(new, "train.py", "exec")
    assert migrate(new, Options(target=target), main=True).edits == []
    return [line.strip() for line in new.splitlines()], script


def follows(lines: list[str], *expected: str) -> bool:
    return any(tuple(lines[at : at + len(expected)]) == expected for at in range(len(lines)))


def test_the_script_of_the_page() -> None:
    lines, script = moved(SCRIPT)
    assert [one for one in script.findings if one.kind == TODO] == []
    assert follows(
        lines, "import atexit", "import os", "import torch.distributed", "import torch.utils.data.distributed"
    )
    assert follows(
        lines,
        'torch.distributed.init_process_group("tccl")',
        "atexit.register(torch.distributed.destroy_process_group)",
    )
    assert 'device = torch.device("sdaa" if torch.sdaa.is_available() else "cpu")' in lines
    sampler = "torch.utils.data.distributed.DistributedSampler(data)"
    assert f"loader = DataLoader(data, batch_size=16, sampler={sampler})" in lines
    assert lines.index(f"model = {WRAP}") < lines.index("optimizer = torch.optim.SGD(model.parameters(), lr=0.5)")
    assert follows(lines, "for epoch in range(3):", "loader.sampler.set_epoch(epoch)")
    assert FIRST + 'torch.save(model.module.state_dict(), "model.pt")' in lines


@pytest.mark.parametrize(
    "text",
    [
        "def main():\n    if big:\n        model = A()\n    else:\n        model = B()\n    train(model)\n",
        "def main():\n    model = A()\n    if torch.cuda.is_available():\n        model.cuda()\n    train(model)\n",
        "def main():\n    model, other = A(), 1\n    model = model.to(d)\n    train(model)\n    for e in r:\n        model(e)\n    model = B()\n",
        "for fold in range(3):\n    model = A()\n    for e in range(2):\n        model(e)\n",
    ],
)  # fmt: skip
def test_the_model_is_wrapped_when_it_is_whole(text: str) -> None:
    lines, _ = moved(HEAD + text)
    wrapped = [at for at, line in enumerate(lines) if line in (f"model = {WRAP}", f"model = {MOVE_AND_WRAP}")]
    assert len(wrapped) == 1
    after = lines[wrapped[0] + 1]
    assert after in ("train(model)", "for e in range(2):")


def test_data_parallel_makes_place() -> None:
    lines, script = moved(HEAD + "model = A()\nmodel = torch.nn.DataParallel(model)\nmodel.cuda()\n")
    assert follows(lines, "model = model", "model.sdaa()", f"model = {WRAP}")
    assert [one for one in script.findings if one.kind == TODO] == []


def test_a_data_set_made_in_the_call_and_a_shuffle_that_is_computed() -> None:
    lines, _ = moved(
        HEAD + "model = A()\nl = DataLoader(D(1), 4, shuffle=a.mix)\nfor e in range(2):\n    for x in l: pass\n"
    )
    sampler = "torch.utils.data.distributed.DistributedSampler(msft_dataset, shuffle=a.mix)"
    assert f"l = DataLoader((msft_dataset := D(1)), 4, sampler={sampler})" in lines
    assert "l.sampler.set_epoch(e)" in lines


def test_loaders_in_a_fixed_order_stay_whole() -> None:
    text = HEAD + "model = A()\nl = DataLoader(d, shuffle=False)\nm = DataLoader(d)\n"
    assert {"l = DataLoader(d, shuffle=False)", "m = DataLoader(d)"} <= set(moved(text)[0])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("l = DataLoader(d, sampler=s)", "a sampler of its own"),
        ("l = DataLoader(d, *how)", "made at run time"),
        ("l = DataLoader(d, shuffle=True)", "no loop over epochs"),
        ("f(DataLoader(d, shuffle=True))", "no variable"),
        ("with open('a', 'w') as f: pass", "every process writes"),
        ("import os\nos.makedirs('a')", "several processes make"),
    ],
)
def test_what_is_left_to_a_person(line: str, said: str) -> None:
    _, script = moved(HEAD + "model = A()\n" + line + "\n")
    assert [one.kind for one in script.findings if said in one.reason] == [TODO]


def test_no_model_of_this_name() -> None:
    script = migrate(HEAD + "net = A()\n", Options(target="model"), main=True)
    assert any("no model is assigned to 'model'" in one.reason for one in script.findings)


def test_a_script_that_starts_processes_itself_is_left_alone() -> None:
    text = "import torch.distributed as dist\ndist.init_process_group('nccl')\nmodel = A()\nprint(model)\n"
    script = migrate(text, Options(target="model"), main=True)
    assert apply(text, script.edits).endswith("dist.init_process_group('tccl')\nmodel = A()\nprint(model)\n")
    assert any("starts several processes itself" in one.reason for one in script.findings)


def test_only_the_first_process_saves_in_other_files_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "proj"
    project.mkdir()
    (project / "train.py").write_text(HEAD + "model = A().cuda()\n", encoding="utf-8")
    (project / "keep.py").write_text(
        "import torch\ndef keep(s):\n    print(s)\n    torch.save(s, 'a')\n", encoding="utf-8"
    )
    assert main(["-i", str(project), "-o", str(tmp_path / "out"), "distributed", "-m", "train.py"]) == 0
    out = tmp_path / "out" / "proj_msft"
    text = (out / "keep.py").read_text(encoding="utf-8")
    assert "    print(s)\n    " + FIRST + "torch.save(s, 'a')\n" in text
    launcher = (out / "run_distributed_sdaa.sh").read_text(encoding="utf-8")
    assert 'torch.distributed.run --standalone --nproc_per_node="$count" \'train.py\' "$@"' in launcher
    capsys.readouterr()
