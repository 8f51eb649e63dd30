"""Stages of `teco adapt` are skipped while their inputs hold, and what was edited by hand stays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import ConfigError, DataError, ModelError
from toolkit.adapt.runner import Shown, StageError, run_stages
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, STATE, Outcome, Request, Work, content_of, open_work, usable_name


class Writes(Stage):
    """Writes a file with the text of the request's source."""

    name, title = "writes", "writes"

    def inputs(self, work: Work) -> Mapping[str, Any]:
        return work.request.part("source")

    def run(self, work: Work) -> Outcome:
        file = work.folder / "text.txt"
        work.folder.mkdir(exist_ok=True)
        file.write_text(work.request.source, encoding="utf-8")
        return Outcome("written", {"length": len(work.request.source)}, [file])


class Reads(Stage):
    """Depends on the length of the text only."""

    name, title, needs = "reads", "reads", ("writes",)

    def run(self, work: Work) -> Outcome:
        return Outcome(f"read {work.facts('writes')['length']}")


class Optional(Stage):
    name, title, optional = "optional", "optional", True

    def run(self, work: Work) -> Outcome:
        raise DataError("nothing to read")


class Fails(Stage):
    name, title = "fails", "fails"

    def run(self, work: Work) -> Outcome:
        raise DataError("a line\nand more")


class Stopped(Stage):
    name, title = "stopped", "stopped"

    def run(self, work: Work) -> Outcome:
        raise KeyboardInterrupt


def request(tmp_path: Path, **changes: Any) -> Request:
    return Request(model="m.onnx", name="m", root=tmp_path, **changes)


def ran(work: Work, *stages: Stage, **how: Any) -> list[str]:
    """Run stages; return the names of those that were not skipped."""
    shown: list[Shown] = []
    run_stages(work, stages, on_end=shown.append, **how)
    return [one.stage.name for one in shown if not one.skipped]


def test_stages_are_skipped_while_their_inputs_hold(tmp_path: Path) -> None:
    stages = (Writes(), Reads())
    folder = tmp_path / "out"
    assert ran(open_work(request(tmp_path, source="abc"), folder), *stages) == ["writes", "reads"]
    assert ran(open_work(request(tmp_path, source="abc"), folder), *stages) == []
    assert ran(open_work(request(tmp_path, source="xyz"), folder), *stages) == ["writes"]  # of the same length
    assert ran(open_work(request(tmp_path, source="abcd"), folder), *stages) == ["writes", "reads"]
    (folder / "text.txt").write_text("changed", encoding="utf-8")
    assert ran(open_work(request(tmp_path, source="abcd"), folder), *stages) == ["writes"]
    (folder / "text.txt").unlink()
    assert ran(open_work(request(tmp_path, source="abcd"), folder), *stages) == ["writes"]
    work = open_work(request(tmp_path, source="abcd"), folder)
    assert ran(work, *stages, again="reads") == ["reads"]
    assert ran(work, *stages, only="writes") == ["writes"]
    assert (folder / ".gitignore").read_text(encoding="utf-8") == "*\n"


def test_optional_stages_become_notes_and_others_stop(tmp_path: Path) -> None:
    work = open_work(request(tmp_path, source="a"), tmp_path / "other")
    with pytest.raises(StageError, match="fails: a line"):
        run_stages(work, (Writes(), Optional(), Fails(), Reads()))
    kept = open_work(request(tmp_path, source="a"), tmp_path / "other")
    assert list(kept.records) == ["writes", "optional"]
    assert kept.records["optional"].status == NOTED
    assert kept.records["optional"].line == "not done: nothing to read"


class Lacks(Stage):
    name, title = "lacks", "lacks"

    def run(self, work: Work) -> Outcome:
        raise ModelError("m.onnx: metadata 'features': is missing, so they are not known; export the model again")


def test_missing_metadata_name_the_flag(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="are not known; give it with --note features=JSON") as caught:
        run_stages(open_work(request(tmp_path), tmp_path / "out"), (Lacks(),))
    assert "export the model again" not in str(caught.value)


class Breaks(Stage):
    """Raises what a compiler may raise."""

    name, title, optional = "breaks", "breaks", True

    def run(self, work: Work) -> Outcome:
        raise RuntimeError("no kernel\nfor this")


def test_any_error_of_an_optional_stage_is_a_note(tmp_path: Path) -> None:
    work = open_work(request(tmp_path, source="a"), tmp_path / "out")
    assert ran(work, Breaks(), Writes()) == ["breaks", "writes"]
    assert work.records["breaks"].line == "not done: RuntimeError: no kernel for this"
    assert work.records["breaks"].status == NOTED


class Crashes(Stage):
    """Ends the process, as a crash of native code does."""

    name, title, optional = "crashes", "crashes", True

    def run(self, work: Work) -> Outcome:
        state = (work.folder / STATE).read_bytes()  # all that is left of a process that ends here
        (work.folder / "left.json").write_bytes(state)
        raise KeyboardInterrupt


def crash(tmp_path: Path) -> Work:
    """Run until the stage ends the process; return what the next run finds."""
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run_stages(open_work(request(tmp_path, source="a"), folder), (Writes(), Crashes()))
    (folder / "left.json").replace(folder / STATE)
    return open_work(request(tmp_path, source="a"), folder)


def test_an_optional_stage_that_ends_the_process_is_left_out_at_last(tmp_path: Path) -> None:
    assert crash(tmp_path).ends == {"crashes": 1}
    work = crash(tmp_path)
    assert work.ends == {"crashes": 2}
    assert ran(work, Writes(), Crashes()) == ["crashes"]
    assert "ended in it 2 times; --again crashes" in work.records["crashes"].line
    with pytest.raises(KeyboardInterrupt):  # tried again
        run_stages(work, (Writes(), Crashes()), again="crashes")
    assert open_work(request(tmp_path, source="a"), tmp_path / "out").ends == {}  # Ctrl-C is not a crash


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    work = open_work(request(tmp_path, source="a"), tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        run_stages(work, (Writes(), Stopped(), Reads()))
    assert ran(open_work(request(tmp_path, source="a"), tmp_path / "out"), Writes(), Reads()) == ["reads"]


def test_unknown_and_unready_stages(tmp_path: Path) -> None:
    work = open_work(request(tmp_path), tmp_path / "out")
    with pytest.raises(ConfigError, match="did you mean 'writes'"):
        run_stages(work, (Writes(), Reads()), only="write")
    with pytest.raises(ConfigError, match="--only reads needs the results of writes"):
        run_stages(work, (Writes(), Reads()), only="reads")
    with pytest.raises(ConfigError, match="--again"):
        run_stages(work, (Writes(),), again="nothing")


@pytest.mark.parametrize("text", ["{", "[]", '{"stages": {"a": {"b": 1}}}', '{"stages": 5, "model": "m.onnx"}', "\x00"])
def test_invalid_state(text: str, tmp_path: Path) -> None:
    (tmp_path / STATE).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"adapt\.json is not a state") as caught:
        open_work(request(tmp_path), tmp_path)
    assert "\n" not in str(caught.value)


def test_another_models_folder(tmp_path: Path) -> None:
    open_work(request(tmp_path), tmp_path / "out").save()
    other = Request(model="n.onnx", name="m", root=tmp_path)
    assert open_work(other, tmp_path / "out").records == {}  # no stage of the first model ended
    work = open_work(request(tmp_path, source="a"), tmp_path / "out")
    assert ran(work, Writes()) == ["writes"]
    with pytest.raises(ConfigError, match=r"another model, 'm\.onnx'"):
        open_work(other, tmp_path / "out")


def test_a_later_version_begins_anew(tmp_path: Path) -> None:
    work = open_work(request(tmp_path, source="a"), tmp_path)
    assert ran(work, Writes()) == ["writes"]
    found = json.loads((tmp_path / STATE).read_text(encoding="utf-8"))
    (tmp_path / STATE).write_text(json.dumps({**found, "schema_version": 99}), encoding="utf-8")
    assert open_work(request(tmp_path, source="a"), tmp_path).records == {}


def test_contents(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_text("a", encoding="utf-8")
    first = content_of(tmp_path / "data")
    (tmp_path / "data" / "b.txt").write_text("a", encoding="utf-8")
    assert content_of(tmp_path / "data") != first
    assert content_of(tmp_path / "data" / "a.txt") == content_of(tmp_path / "data" / "b.txt")
    assert content_of("fetch:minilm/x") == "fetch:minilm/x"
    assert content_of("") == ""


@pytest.mark.parametrize(
    ("text", "name"),
    [("Model-V2.1", "model_v2_1"), ("7b", "model_7b"), ("---", "model"), ("a" * 60, "a" * 40), ("a.onnx", "a_onnx")],
)
def test_names(text: str, name: str) -> None:
    assert usable_name(text) == name
