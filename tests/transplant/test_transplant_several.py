"""``distributed``: code around a model, its data, its printing and its saving."""

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

PAGE = (ROOT / "docs" / "how-to" / "migrating.md").read_text(encoding="utf-8")
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


def test_data_parallel_is_replaced() -> None:
    lines, script = moved(HEAD + "model = A()\nmodel = torch.nn.DataParallel(model)\nmodel.cuda()\n")
    assert follows(lines, "model = model", "model.sdaa()", f"model = {WRAP}")
    assert [one for one in script.findings if one.kind == TODO] == []


def test_a_data_set_created_in_the_call_and_a_computed_shuffle() -> None:
    lines, _ = moved(
        HEAD + "model = A()\nl = DataLoader(D(1), 4, shuffle=a.mix)\nfor e in range(2):\n    for x in l: pass\n"
    )
    sampler = "torch.utils.data.distributed.DistributedSampler(msft_dataset, shuffle=a.mix)"
    assert f"l = DataLoader((msft_dataset := D(1)), 4, sampler={sampler})" in lines
    assert "l.sampler.set_epoch(e)" in lines


def test_loaders_in_fixed_order_are_unchanged() -> None:
    loaders = ["l = DataLoader(d, shuffle=False)", "m = DataLoader(d)"]
    assert {*loaders} <= {*moved(HEAD + "model = A()\n" + "\n".join(loaders) + "\n")[0]}


@pytest.mark.parametrize("name", ["test_loader", "val_dl", "self.valid_loader", "testloader", "eval_data", "dev"])
def test_loaders_for_evaluation_are_unchanged(name: str) -> None:
    lines = [f"{name} = DataLoader(d, shuffle=True)", f"{name} = DataLoader(d, **how)"]
    assert {*lines} <= {*moved(HEAD + "model = A()\n" + "\n".join(lines) + "\n")[0]}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("l = DataLoader(d, sampler=s)", "its own sampler"),
        ("l = DataLoader(d, *how)", "created at run time"),
        ("l = DataLoader(d, shuffle=True)", "no loop over epochs"),
        ("f(DataLoader(d, shuffle=True))", "not assigned to a variable"),
        ("l = DataLoader(d, 8, True, None, b)", "positional"),
        ("w = SummaryWriter('runs')", "every process writes this record"),
        ("for x in l:\n    y = model.loss(x)", "not of .loss()"),
        ("with open('a', 'w') as f: pass", "every process writes"),
        ("import os\nos.makedirs('a')", "several processes create"),
    ],
)
def test_places_for_manual_work(line: str, said: str) -> None:
    _, script = moved(HEAD + "model = A()\n" + line + "\n")
    assert [one.kind for one in script.findings if said in one.reason] == [TODO]


def test_an_unknown_model_name_is_reported() -> None:
    script = migrate(HEAD + "net = A()\n", Options(target="model"), main=True)
    assert any("no model is assigned to 'model'" in one.reason for one in script.findings)


def test_a_multiprocess_script_is_unchanged() -> None:
    text = "import torch.distributed as dist\ndist.init_process_group('nccl')\nmodel = A()\nprint(model)\n"
    script = migrate(text, Options(target="model"), main=True)
    assert apply(text, script.edits).endswith("dist.init_process_group('tccl')\nmodel = A()\nprint(model)\n")
    assert any("itself uses several processes" in one.reason for one in script.findings)


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


def test_a_model_attribute_is_saved_without_the_wrapper() -> None:
    text = "class T:\n    def keep(self):\n        torch.save({'m': self.model.state_dict()}, 'a')\n"
    lines, _ = moved(HEAD + text + "model = A()\nT().keep()\n")
    assert f"model = {MOVE_AND_WRAP}" in lines
    assert FIRST + "torch.save({'m': getattr(self.model, \"module\", self.model).state_dict()}, 'a')" in lines


def test_the_function_that_trains_wraps_and_not_the_one_that_builds() -> None:
    build = "def build(a):\n    model = A()\n    if a:\n        model.load_state_dict(a)\n    return model\n"
    use = "def main(a):\n    model = build(a).cuda(a.gpu)\n    opt = SGD(model.parameters())\n    print(model[0].w)\n"
    lines, _ = moved(HEAD + build + use)
    assert follows(lines, "model = build(a).sdaa()", f"model = {WRAP}", "opt = SGD(model.parameters())")
    assert FIRST + "print(model.module[0].w)" in lines
    assert lines.count(f"model = {WRAP}") == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y.cuda(args.gpu, non_blocking=True)", "y.sdaa(non_blocking=True)"),
        ("y.cuda(non_blocking=True, device=g)", "y.sdaa(non_blocking=True)"),
        ("torch.cuda.set_device(args.gpu)", "torch.sdaa.set_device(torch.sdaa.current_device())"),
        ("d = torch.device('cuda', args.gpu)", "d = torch.device('sdaa')"),
        ("d = f'cuda:{args.gpu}'", "d = 'sdaa'"),
        ("d = 'cuda:%d' % gpu", "d = 'sdaa'"),
        ("d = 'cuda:' + str(gpu)", "d = 'sdaa'"),
        ("d = 'cuda:{}'.format(gpu)", "d = 'sdaa'"),
    ],
)
def test_every_number_of_a_card_is_that_of_the_process(before: str, after: str) -> None:
    assert after in moved(HEAD + "model = A().cuda()\n" + before + "\n")[0]


def test_arguments_of_print_that_run_the_model_are_computed_by_all() -> None:
    lines, _ = moved(HEAD + "model = A().cuda()\nprint('acc', test(model))\nprint('n', len(d), x.item())\n")
    assert '(print if os.environ.get("RANK", "0") == "0" else lambda *_, **__: None)(\'acc\', test(model))' in lines
    assert FIRST + "print('n', len(d), x.item())" in lines


def test_the_group_starts_after_torch_and_before_the_first_statement() -> None:
    text = "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nimport torch\nprint(1)\nmodel = A()\n"
    lines, _ = moved(text)
    assert "if \"RANK\" not in os.environ: os.environ['SDAA_VISIBLE_DEVICES'] = '0'" in lines
    assert follows(lines, "atexit.register(torch.distributed.destroy_process_group)", FIRST + "print(1)")
    assert lines.index("import torch_sdaa") < lines.index('torch.distributed.init_process_group("tccl")')


@pytest.mark.parametrize("start", ["if __name__ == '__main__':\n    main()\n", "if __name__ == '__main__': main()\n"])
def test_the_group_starts_with_the_script(start: str) -> None:
    lines, _ = moved(HEAD + "def main():\n    model = A()\n" + start)
    text = "\n".join(lines)
    assert text.index("__main__") < text.index("init_process_group") < text.rindex("main()")


def test_arguments_of_a_loader_in_a_dictionary() -> None:
    text = "def main():\n    l = DataLoader(d, **how)\n    model = A()\n    for epoch in range(2):\n        run(l)\n"
    lines, script = moved(HEAD + text)
    sampler = "torch.utils.data.distributed.DistributedSampler(d)"
    chosen = f'({{**how, "shuffle": None, "sampler": {sampler}}} if how.get("shuffle") else how)'
    assert f"l = DataLoader(d, **{chosen})" in lines
    assert 'getattr(l.sampler, "set_epoch", int)(epoch)' in lines
    assert [one for one in script.findings if one.kind == TODO] == []
    lines, _ = moved(HEAD + "model = A()\nl = DataLoader(d, shuffle=True, **how)\n")
    assert f"l = DataLoader(d, sampler={sampler}, **how)" in lines


def test_a_saved_file_is_copied_by_one_process() -> None:
    text = "import shutil\nmodel = A()\ndef keep(s):\n    torch.save(s, 'a')\n    shutil.copyfile('a', 'b')\n"
    assert FIRST + "shutil.copyfile('a', 'b')" in moved(HEAD + text)[0]
