"""``teco export-repository``: what it writes is read by Triton's own messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from support import DIGITS, ROOT, SaveOnnx

from engine import ConfigError
from toolkit.commands.serve import export_repository as main

MIXES = "mixes (float[N, 4] x) => (float[N, 4] y) { y = Softmax <axis = 0> (x) }"
SCALARS = "scalars (float[N] x, int64[N] k) => (float[N] y) { f = Cast <to = 1> (k) y = Mul (x, f) }"


def read(folder: Path) -> Any:
    """Return a config as Triton's message, without its package as lines."""
    text = (folder / "config.pbtxt").read_text(encoding="utf-8")
    try:
        from tritonclient.grpc import model_config_pb2
    except ImportError:
        pytest.skip("tritonclient is missing")
    from google.protobuf import text_format

    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_a_model_of_the_zoo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["digits", "--out", str(tmp_path / "models"), "--max_batch", "16"]) == 0
    folder = tmp_path / "models" / "digits"
    assert str(folder) in capsys.readouterr().out
    assert (folder / "1" / "model.onnx").read_bytes() == (DIGITS / "digits_dyn.onnx").read_bytes()
    assert (folder / "labels.txt").read_text().split() == list("0123456789")
    lines = (folder / "config.pbtxt").read_text().splitlines()
    assert lines[:3] == ['name: "digits"', 'backend: "onnxruntime"', "max_batch_size: 16"]
    found = read(folder)
    assert [(one.name, list(one.dims), one.data_type) for one in found.input] == [("input", [3, 32, 32], 11)]
    assert [(list(one.dims), one.label_filename) for one in found.output] == [([10], "labels.txt")]
    assert found.HasField("dynamic_batching")


def test_rows_that_depend_are_not_batched(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    file = save_onnx(MIXES, "mixes.onnx")
    main([f"a={file}", "--out", str(tmp_path)])
    found = read(tmp_path / "a")
    assert (found.name, found.max_batch_size, found.HasField("dynamic_batching")) == ("a", 0, False)
    assert list(found.input[0].dims) == [-1, 4]


def test_rows_that_are_numbers(tmp_path: Path, save_onnx: SaveOnnx) -> None:
    file = save_onnx(SCALARS, "scalars.onnx")
    main([str(file), "--out", str(tmp_path)])
    found = read(tmp_path / "scalars")
    assert found.max_batch_size == 32
    assert [list(one.dims) for one in (*found.input, *found.output)] == [[1]] * 3
    assert all(one.HasField("reshape") for one in (*found.input, *found.output))


def test_external_weights_are_copied(tmp_path: Path) -> None:
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(model, str(source / "m.onnx"), save_as_external_data=True, location="m.data", size_threshold=100)
    main([str(source / "m.onnx"), "--out", str(tmp_path / "models")])
    assert (tmp_path / "models/m/1/m.data").read_bytes() == (source / "m.data").read_bytes()
    onnx.load(str(tmp_path / "models/m/1/model.onnx"))


def test_networks_of_a_model_are_models(tmp_path: Path) -> None:
    main(["tiny_marian", "--out", str(tmp_path)])
    assert sorted(one.name for one in tmp_path.iterdir()) == ["tiny_marian_decoder", "tiny_marian_encoder"]


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["none.onnx"], "none.onnx"),
        (["digits", "digits"], "digits"),
        ([f"a/b={DIGITS / 'digits_dyn.onnx'}"], "a/b"),
        (["digits", "--max_batch", "0"], "--max_batch"),
    ],
)
def test_wrong_arguments(words: list[str], part: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        main([*words, "--out", str(tmp_path / "models")])
    assert part in str(caught.value)
    assert not (tmp_path / "models").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "digits").mkdir()
    with pytest.raises(ConfigError):
        main(["digits", "--out", str(tmp_path)])
    assert list((tmp_path / "digits").iterdir()) == []
    assert ROOT
