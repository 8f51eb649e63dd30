"""Flags by task and script, shapes and sizes, and several models or data paths by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support import SaveOnnx, made

from engine import ConfigError, DataError
from utils.pipeline.flags.options import DATA, GROUPS, MODEL, Options, options, script_flags
from utils.pipeline.session import engine_spec, load_data, open_engines
from utils.shapes import parse_dims, parse_shapes
from utils.tasks.base import SCRIPTS, Flag, Task
from utils.tasks.classification.task import CLASSIFICATION

TWO = replace(CLASSIFICATION, name="two", models=("det", "rec"), flags=(), check=lambda options: None)
PLAIN = replace(TWO, name="plain", models=())


def parsed(*argv: object, task: Task = PLAIN, script: str = "valid", **defaults: Any) -> Options:
    return options("test", task, script, list(map(str, argv)), **{"ckpt": Path("m.onnx"), **defaults})


def test_each_script_has_its_flags() -> None:
    names = {script: {flag.key for flag in script_flags(CLASSIFICATION, script)} for script in SCRIPTS}
    only_valid = {"resume", "launcher", "num_workers", "calib", "max_drop", "streams", "decode", "show"}
    assert names["valid"] - names["single"] == names["valid"] - names["multi"] == only_valid
    assert names["single"] - names["valid"] == {"frames", "save_frames"}
    assert {"topk", "input_size", "ckpt", "data_path", "input_shapes", "dim"} <= set.intersection(*names.values())


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_flag_that_a_script_lacks_has_its_default(script: str) -> None:
    opt = parsed(task=CLASSIFICATION, script=script)
    assert (opt.decode, opt.resume, opt.calib, opt.save, opt.max_drop) == ("exact", None, 128, None, 0.01)
    assert opt.script == script


def test_help_shows_only_defaults_that_are_set(capsys: pytest.CaptureFixture[str]) -> None:
    for script in SCRIPTS:
        with pytest.raises(SystemExit):
            parsed("--help", task=CLASSIFICATION, script=script, data_path=Path("100%/data"))
        shown = capsys.readouterr().out
        for word in ("None", "False)", "[]"):
            assert word not in shown
        assert "(default: sdaa)" in shown
        assert "100%/data" in " ".join(shown.split())


def test_help_shows_percent_signs(capsys: pytest.CaptureFixture[str]) -> None:
    task = replace(PLAIN, flags=(Flag("--scale", "100% of the boxes, %d too", "5%"),), data_help="90% of it")
    with pytest.raises(SystemExit):
        parsed("--help", task=task)
    shown = " ".join(capsys.readouterr().out.split())
    assert "100% of the boxes, %d too (default: 5%)" in shown
    assert "90% of it" in shown


def test_flags_are_grouped_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Every flag is in the group that it names; those of the task come last. Paths are relative."""
    where = Path.cwd() / "folder" / "m.onnx"
    with pytest.raises(SystemExit):
        parsed("--help", task=CLASSIFICATION, ckpt=where)
    shown = capsys.readouterr().out
    starts = [shown.index(f"\n{title}:\n") for title in (*GROUPS, "task classification")]
    assert starts == sorted(starts)
    for flag in script_flags(CLASSIFICATION, "valid"):
        group = GROUPS.index(flag.group) if flag.group else len(GROUPS)
        end = [*starts, len(shown)][group + 1]
        assert starts[group] < shown.index(f"\n  {flag.name} ") < end, flag.name
    assert f"(default: {Path('folder', 'm.onnx')})" in " ".join(shown.split())
    assert str(where) not in "".join(shown.split())


@pytest.mark.parametrize("name", ["--models", "--paths", "--ckpt", "--script", "--task", "--help"])
def test_reserved_names_of_flags(name: str) -> None:
    with pytest.raises(ConfigError, match=f"task plain: flag {name} "):
        parsed(task=replace(PLAIN, flags=(Flag(name, "x"),)))


def test_a_task_may_replace_a_common_flag() -> None:
    task = replace(PLAIN, flags=(Flag("--batch_size", "lanes of an environment", 7, int),))
    assert parsed(task=task).batch_size == 7


def test_a_default_of_an_unknown_flag() -> None:
    with pytest.raises(ConfigError, match="'top_k' is not a flag of task plain"):
        parsed(top_k=5)
    with pytest.raises(ConfigError, match="--ckpt FILE"):
        parsed(ckpt=None)


def test_models_and_data_by_name(tmp_path: Path) -> None:
    opt = parsed("--ckpt", "rec=b.onnx", "det=a.onnx", "--data_path", "queries=q.tsv", "corpus=c.tsv", task=TWO)
    assert list(opt.models.items()) == [("det", Path("a.onnx")), ("rec", Path("b.onnx"))]
    assert opt.paths == {"queries": Path("q.tsv"), "corpus": Path("c.tsv")}
    assert opt.data_text == "queries=q.tsv corpus=c.tsv"
    assert parsed(task=TWO, ckpt={"det": Path("x"), "rec": Path("y")}).models == {"det": Path("x"), "rec": Path("y")}
    one = parsed("--data_path", "d")
    assert (one.models, one.paths) == ({MODEL: Path("m.onnx")}, {DATA: Path("d")})
    assert parsed().paths == {}
    odd = tmp_path / "a=b.onnx"
    odd.touch()
    assert parsed("--ckpt", odd).ckpt == odd  # an existing file is not NAME=PATH


@pytest.mark.parametrize(
    ("argv", "task", "text"),
    [
        (["--ckpt", "a.onnx"], TWO, "det=FILE rec=FILE"),
        (["--ckpt", "det=a.onnx"], TWO, "--ckpt det: task two takes the models det, rec"),
        (["--ckpt", "det=a", "rec=b", "x=c"], TWO, "takes the models det, rec"),
        (["--ckpt", "det=a", "det=b"], TWO, "'det' is given twice"),
        (["--ckpt", "det=a", "b.onnx"], TWO, "--ckpt 'b.onnx'"),
        (["--ckpt", "det=a", "rec=b"], PLAIN, "task plain takes one model"),
        (["--dim", "seq"], PLAIN, "--dim 'seq' is not NAME=SIZE"),
        (["--dim", "seq=1", "seq=2"], PLAIN, "'seq' is given twice"),
        (["--input_shapes", "1*x"], PLAIN, "is not a shape"),
        (["--input_shapes", "a:1,2"], PLAIN, "name every input or none"),
        (["--input_shapes", "2*0"], PLAIN, "every dimension is at least 1"),
    ],
)
def test_invalid_values_give_one_line(argv: list[str], task: Task, text: str) -> None:
    with pytest.raises(ConfigError, match=text) as caught:
        parsed(*argv, task=task)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "wanted", "text"),
    [
        ([], "data", "no data given; pass --data_path PATH"),
        (["--data_path", "d"], "corpus", "--data_path is d; pass --data_path corpus=PATH"),
        (["--data_path", "x=d"], "data", "--data_path names x; pass --data_path PATH"),
    ],
)
def test_a_missing_data_path_gives_one_line(argv: list[str], wanted: str, text: str) -> None:
    task = replace(PLAIN, load=lambda paths, options: paths[wanted])
    with pytest.raises(ConfigError, match=f"^{text}$"):
        load_data(made(task, parsed(*argv, task=task)))


def test_a_file_that_cannot_be_opened_gives_one_line(tmp_path: Path) -> None:
    task = replace(PLAIN, load=lambda paths, options: open(paths["data"]).read())  # noqa: SIM115
    with pytest.raises(DataError, match=r"nowhere\.txt.*No such file or directory.*--data_path"):
        load_data(made(task, parsed("--data_path", tmp_path / "nowhere.txt", task=task)))


def test_sizes_apply_to_models_with_the_dimension(save_onnx: SaveOnnx) -> None:
    task = replace(TWO, input_size=lambda options: None)
    text = "m (float[N, {}] x) => (float[N, {}] y) {{ y = Relu(x) }}"
    files = {name: save_onnx(text.format(dim, dim), f"{name}.onnx") for name, dim in (("det", 3), ("rec", "past"))}
    sizes = {
        word: [engine_spec(made(task, parsed("--dim", word, task=task, ckpt=files)), name, 1).dims for name in files]
        for word in ("past=2,4", "rec.past=2", "typo=2")
    }
    assert sizes["past=2,4"] == [{}, {"past": (2, 4)}]
    assert sizes["rec.past=2"] == [{}, {"past": (2,)}]
    assert sizes["typo=2"] == [{"typo": (2,)}] * 2  # which the engine refuses by its name


def test_shapes_and_sizes_of_the_engine() -> None:
    opt = parsed("--input_shapes", "ids:N*128,mask:8x128", "--batch_size", 8, "--dim", "seq=128,64")
    spec = engine_spec(made(PLAIN, opt), MODEL, 1)
    assert spec.input_size == ((None, 128), (None, 128))
    assert spec.input_name == ("ids", "mask")
    assert spec.dims == {"seq": (64, 128)}
    opt = parsed("--dim", "seq=128", "rec.width=320,640", task=TWO, ckpt={"det": Path("a"), "rec": Path("b")})
    sizes = replace(TWO, input_size=lambda options: {"rec": ((None, 3, 32, None),)})
    assert engine_spec(made(sizes, opt), "det", 1).dims == {"seq": (128,)}
    assert engine_spec(made(sizes, opt), "rec", 1).dims == {"seq": (128,), "width": (320, 640)}
    assert engine_spec(made(sizes, opt), "det", 1).input_size is None
    assert engine_spec(made(sizes, opt), "rec", 1).input_size == ((None, 3, 32, None),)


def test_symbols_with_dots() -> None:
    opt = parsed("--dim", "p2o.DynamicDimension.1=320,640", task=CLASSIFICATION)
    assert engine_spec(made(CLASSIFICATION, opt), MODEL, 1).dims == {"p2o.DynamicDimension.1": (320, 640)}
    opt = parsed("--dim", "rec.p2o.Dim.0=32", "p2o.Dim.1=64", task=TWO, ckpt={"det": Path("a"), "rec": Path("b")})
    own_shapes = replace(TWO, input_size=lambda options: None)
    assert [engine_spec(made(own_shapes, opt), name, 1).dims for name in ("det", "rec")] == [
        {"p2o.Dim.1": (64,)},
        {"p2o.Dim.1": (64,), "p2o.Dim.0": (32,)},
    ]


def test_flags_that_trade_exactness() -> None:
    flags = (Flag("--quick", "q", "no", exact="no"), Flag("--beam", "b", 5, int))
    opt = parsed("--quick", "yes", "--beam", 3, "--dtype", "int8", task=replace(PLAIN, flags=flags))
    assert opt.faster == ["--dtype int8", "--quick yes"]
    exact = opt.exactly()
    assert (exact.quick, exact.beam, exact.dtype, exact.faster) == ("no", 3, "float32", [])


def test_a_missing_default_model_names_the_export_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "export_onnx.py").touch()
    monkeypatch.chdir(tmp_path)
    default = parsed(ckpt=tmp_path / "net_dyn.onnx")
    with (
        pytest.raises(ConfigError, match=r"net_dyn\.onnx .*: python export_onnx\.py$"),
        open_engines(made(PLAIN, default)),
    ):
        pass


@given(sizes=st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), st.sets(st.integers(1, 999), min_size=1)))
def test_sizes_are_parsed(sizes: dict[str, set[int]]) -> None:
    words = [f"{name}={','.join(map(str, found))}" for name, found in sizes.items()]
    assert parse_dims(words) == {name: tuple(sorted(found)) for name, found in sizes.items()}


@given(text=st.text("0123456789xN*:,ab scalar", max_size=20))
def test_shapes_are_parsed_or_an_error(text: str) -> None:
    try:
        names, shapes = parse_shapes(text, 4)
    except ConfigError:
        return
    assert all(size is None or size >= 1 for shape in shapes for size in shape)
    assert len(names) in (0, len(shapes))


def test_optional_models() -> None:
    one = replace(TWO, optional=("det",))
    assert parsed("--ckpt", "a.onnx", task=one).models == {"rec": Path("a.onnx")}
    assert parsed("--ckpt", "rec=a.onnx", task=one).models == {"rec": Path("a.onnx")}
    assert list(parsed("--ckpt", "rec=a.onnx", "det=b.onnx", task=one).models) == ["det", "rec"]
    for words in (["det=a.onnx"], ["rec=a.onnx", "other=b.onnx"]):
        with pytest.raises(ConfigError, match=r"rec=FILE \[det=FILE\]$"):
            parsed("--ckpt", *words, task=one)


def test_line_breaks_in_arguments_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options(None, CLASSIFICATION, "valid", ["a\neval_metric 9.9"])
    assert "\neval_metric" not in capsys.readouterr().err
