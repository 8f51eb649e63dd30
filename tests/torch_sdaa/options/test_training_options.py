"""Every row of the page of options: a name has the effect that the page describes."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import ROOT, RunPython

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from engine import ConfigError  # noqa: E402
from tecoinfer_modelzoo.cache import cache_folder  # noqa: E402
from torch_sdaa.cost.prices import Price  # noqa: E402
from torch_sdaa.loading.core import C  # noqa: E402
from torch_sdaa.options import settings  # noqa: E402
from torch_sdaa.reports import kernel_meta, launch_lines  # noqa: E402

pytestmark = pytest.mark.torch

ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in (ROOT / "docs/reference/training_options.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]
"""Name, values, state and text of each row of the page."""

NO_EFFECT = [setting for setting in settings.TABLE if setting.state == settings.NO_EFFECT]


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(settings, "_settings", {})
    monkeypatch.setattr(settings, "_before", {})
    monkeypatch.setattr(settings, "first_process", lambda: True)
    for name in [name for name in os.environ if name.startswith(settings._PREFIXES)]:
        monkeypatch.delenv(name)
    level = logging.getLogger("torch_sdaa").level
    yield
    logging.getLogger("torch_sdaa").setLevel(level)
    launch_lines.set_stdout("0")
    kernel_meta.set_level(0)
    C.set_blocking(False)


def test_the_page_has_the_table() -> None:
    shown = [(name.strip("`"), values, state, text) for name, values, state, text in ROWS]
    assert shown == [
        (each.name, ", ".join(f"`{value}`" for value in each.values) or "any", each.state, each.here)
        for each in settings.TABLE
    ]


def _concurrent() -> bool:
    """Return whether a copy overlaps with a kernel, in simulated time."""
    before = C.times(0)["now"]
    x, other = torch.ones(64, 64, device="sdaa"), torch.sdaa.Stream()
    torch.sdaa.synchronize()
    begun = C.times(0)
    x @ x
    with torch.sdaa.stream(other):
        torch.ones(1 << 20).to("sdaa", non_blocking=True)
    torch.sdaa.synchronize()
    ended = C.times(0)
    spent = ended["compute"] + ended["copies"] - begun["compute"] - begun["copies"]
    assert ended["now"] > before
    return ended["now"] - begun["now"] < 0.99 * spent


def test_task_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _concurrent()
    monkeypatch.setenv("TASK_QUEUE_ENABLE", "0")
    settings.start()
    assert not _concurrent()
    monkeypatch.setenv("TASK_QUEUE_ENABLE", "1")
    settings.start()
    assert _concurrent()


def test_log_level_and_stdout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.zeros(3, 5, device="sdaa")
    C.settle()  # what is only priced later has its line later
    for level, expected in (("1", 1), ("0", 2), ("3", 0), ("4", 0)):
        monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", level)
        monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
        settings.start()
        launch_lines.logged(lambda launches: [Price(1e-6, 0.0)] * len(launches))([_launch(x)])
        printed = capsys.readouterr().out.splitlines()
        assert len(printed) == expected
        assert not expected or printed[0].startswith(
            "[INFO] torch_sdaa: aten::neg: float32[3x5] -> float32[3x5], 1.000 us"
        )
    monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", "1")
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "0")
    settings.start()
    assert logging.getLogger("torch_sdaa").propagate
    launch_lines.logged(lambda launches: [Price(1e-6, 0.0)])([_launch(x)])
    assert capsys.readouterr().out == ""


def test_the_level_of_the_root_logger_prints_no_launches(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.zeros(3, 5, device="sdaa")
    log = logging.getLogger("torch_sdaa")
    for level, lines in ((logging.NOTSET, 0), (logging.INFO, 1), (logging.DEBUG, 2), (logging.WARNING, 0)):
        caplog.clear()
        caplog.set_level(logging.DEBUG)
        log.setLevel(level)
        launch_lines.logged(lambda launches: [Price(1e-6, 0.0)])([_launch(x)])
        assert len([one for one in caplog.records if one.name == "torch_sdaa"]) == lines


def _launch(x: Any) -> Any:
    meta = ("Float", 4, tuple(x.shape))
    return "aten::neg", [meta], [meta], -1


@pytest.mark.slow
@pytest.mark.parametrize("level", ["0", "1", "2", "3", "4"])
def test_debug_level_and_folder(level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.sdaa.set_option({"ACL_OP_DEBUG_LEVEL": int(level), "ACL_DEBUG_DIR": str(tmp_path)})
    x = torch.ones(3, 7, device="sdaa")
    x @ x.t()
    written = kernel_meta.write()
    assert {path.parent for path in written} <= {tmp_path / "kernel_meta"}
    names = {path.name for path in written}
    assert bool(written) == (level != "0")
    assert any(name.endswith("_compute.json") for name in names) == (level == "4")
    found = [json.loads(path.read_text(encoding="utf-8")) for path in written if "_compute" not in path.name]
    if level != "0":
        assert any(
            each["op"] == "aten::mm" and [side["shape"] for side in each["inputs"]] == [[3, 7], [7, 3]]
            for each in found
        )
    assert all(each["schema_version"] == 1 for each in found)
    assert ("no instructions" in capsys.readouterr().err) == (level in "12")
    assert torch.sdaa.get_options()["ACL_OP_DEBUG_LEVEL"] == level


def test_cache_of_compiled_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "old"))
    monkeypatch.setenv(settings._BUDGET, "7")
    torch.sdaa.set_option({"ACL_OP_COMPILER_CACHE_MODE": "disable", "ACL_OP_COMPILER_CACHE_DIR": str(tmp_path)})
    assert os.environ[settings._BUDGET] == "0"
    folder = cache_folder(kernel_meta.COMPILED)
    assert folder is not None
    assert folder.parent == tmp_path
    kept, other = folder / "a.sdaagraph", folder / "a.txt"
    for path in (kept, other):
        path.write_text("x", encoding="utf-8")
    torch.sdaa.set_option({"ACL_OP_COMPILER_CACHE_MODE": "enable"})
    assert (os.environ[settings._BUDGET], kept.exists()) == ("7", True)
    torch.sdaa.set_option({"ACL_OP_COMPILER_CACHE_MODE": "force"})
    assert (kept.exists(), other.exists()) == (False, True)


@pytest.mark.parametrize("setting", NO_EFFECT, ids=lambda setting: setting.name)
def test_settings_without_effect_are_reported(
    setting: settings.Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in setting.values or ("ADD#MUL",):
        if setting.kind == settings.OPTION:
            torch.sdaa.set_option({setting.name: value})
        else:
            monkeypatch.setenv(setting.name, value)
            settings.start()
        line = f"torch_sdaa: {setting.name}={value} has no effect: {setting.here}\n"
        assert capsys.readouterr().err == ("" if value in setting.quiet else line)


@pytest.mark.parametrize("setting", [each for each in settings.TABLE if each.values], ids=lambda setting: setting.name)
def test_an_invalid_value_is_an_error(setting: settings.Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    option = {setting.name: "nonsense"} if setting.kind == settings.OPTION else {}
    if not option:
        monkeypatch.setenv(setting.name, "nonsense")
    with pytest.raises(ConfigError, match=f"^{setting.name}='nonsense' must be one of "):
        torch.sdaa.set_option(option) if option else settings.start()


def test_unknown_names(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for bad, message in (
        ({"ACL_OP_DEBUG_LEVL": 3}, "no option 'ACL_OP_DEBUG_LEVL'; did you mean 'ACL_OP_DEBUG_LEVEL'?"),
        ({"x": 3}, "no option 'x'; options: ACL_OP_SELECT_IMPL_MODE, "),
        ({"ACL_OP_SELECT_IMPL_MODE": "high_precison"}, "high_performance; did you mean 'high_precision'?"),
        ({"ACL_OPTYPELIST_FOR_IMPLMODE": "Softmax"}, "; did you mean 'SoftmaxV2'?"),
        ({"acl_op_debug_level": 3}, "no option 'acl_op_debug_level'; did you mean 'ACL_OP_DEBUG_LEVEL'?"),
        ({"ACL_DEBUG_DIR": f"{tmp_path}/none"}, "none' does not exist: create it first"),
        ({"ACL_DEBUG_DIR": __file__}, ".py' is a file: choose a folder"),
        (
            {"TASK_QUEUE_ENABLE": 1},
            "TASK_QUEUE_ENABLE is an environment variable: set it before",
        ),
        ([1], "set_option takes a dict of names and values, not list"),
    ):
        with pytest.raises(ConfigError) as caught:
            torch.sdaa.set_option(bad)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=r"ACL_OP_COMPILER_CACHE_DIR='.*none'"):  # all or none
        torch.sdaa.set_option({"ACL_OP_DEBUG_LEVEL": 3, "ACL_OP_COMPILER_CACHE_DIR": f"{tmp_path}/none"})
    assert torch.sdaa.get_options() == {}
    for name, hint in (
        ("TASK_QUEUE_ENABLED", "; did you mean 'TASK_QUEUE_ENABLE'?"),
        ("TASKQUEUE_ENABLE", "; did you mean 'TASK_QUEUE_ENABLE'?"),
        ("SDAA_VISIBLE_DEVICE", "; did you mean 'SDAA_VISIBLE_DEVICES'?"),
        ("MAX_ENGINE_NUM", "; did you mean 'MAX_ENGINE_NUMS'?"),
        ("TORCH_SDAA_STRIKT", "; did you mean 'TORCH_SDAA_STRICT'?"),
        ("TORCH_SDAA_QQQQQQQ", ""),
    ):
        with monkeypatch.context() as here:
            here.setenv(name, "1")
            settings.start()
        assert (
            capsys.readouterr().err == f"torch_sdaa: environment variable {name} is unknown and has no effect{hint}\n"
        )
    monkeypatch.setenv("ACL_OP_DEBUG_LEVEL", "3")
    settings.start()
    assert "is an option, not an environment variable" in capsys.readouterr().err


def test_variables_of_another_card_and_operator_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        here.setenv("ASCEND_RT_VISIBLE_DEVICES", "0,1")
        with pytest.raises(ConfigError, match=r"; set SDAA_VISIBLE_DEVICES=0,1$"):
            settings.start()
    monkeypatch.setenv("DYNAMIC_OP", "ADD MUL")
    with pytest.raises(ConfigError, match=r"DYNAMIC_OP=.*ADD#MUL"):
        settings.start()


@pytest.mark.long
@pytest.mark.slow
def test_the_command_of_the_page(run_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/reference/training_options.md").read_text(encoding="utf-8")
    (command,) = re.findall(r'^ASCEND_.* python -c "(.*)"$', page, re.MULTILINE)
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("ASCEND_GLOBAL_LOG_LEVEL", "1")
    monkeypatch.setenv("ASCEND_SLOG_PRINT_TO_STDOUT", "1")
    assert run_python("-c", command).stdout == shown


@pytest.mark.long
@pytest.mark.slow
def test_variables_that_other_code_reads() -> None:
    elsewhere = {each.name for each in settings.TABLE if each.state == settings.ELSEWHERE}
    assert elsewhere == {"SDAA_VISIBLE_DEVICES", "MAX_ENGINE_NUMS", "TORCH_SDAA_TRANSFER"}
    code = "import torch, torch_sdaa; print(torch.sdaa.device_count(), torch.ones(2).cuda().device)"
    shown = []
    for more in ({"MAX_ENGINE_NUMS": "3"}, {"SDAA_VISIBLE_DEVICES": "2,3"}):
        environment = {**os.environ, "TORCH_SDAA_TRANSFER": "1", **more}
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        shown.append(done.stdout.split()[-2:])
    assert shown == [["3", "sdaa:0"], ["2", "sdaa:0"]]
