"""An export writes the requested forms, equal to those of a full export."""

import argparse
from pathlib import Path

import numpy as np
import onnx
import pytest

from engine import ConfigError
from utils.export.constructed import write_constructed
from utils.export.forms import FORMS, add_exporter, add_forms, chosen_forms
from utils.export.onnx_files import ModelNotes


def build(free: bool) -> onnx.ModelProto:
    size = "batch" if free else "1"
    text = (
        f'<ir_version: 9, opset_import: ["" : 18]> net (float[{size}, 3] x) => (float[{size}, 3] y) {{ y = Relu(x) }}'
    )
    return onnx.parser.parse_model(text)


def written(folder: Path, forms: list[str]) -> dict[str, bytes]:
    cases = [[np.ones((size, 3), np.float32)] for size in (1, 2)]
    results = write_constructed(build, cases, folder / "net", ModelNotes(), forms)
    assert [one.path for one in results] == [folder / f"net{one}.onnx" for one in suffixes(forms)]
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def suffixes(forms: list[str]) -> list[str]:
    return ["" if one == "static" else f"_{one}" for one in forms]


@pytest.mark.parametrize("forms", [["static"], ["dyn"], ["float16_dyn"], ["static", "float16_dyn"]], ids="+".join)
def test_only_requested_forms_are_written(forms: list[str], tmp_path: Path) -> None:
    whole = written(tmp_path / "whole", list(FORMS))
    assert written(tmp_path / "some", forms) == {f"net{one}.onnx": whole[f"net{one}.onnx"] for one in suffixes(forms)}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_torch_export_of_single_forms(exporter: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxsim")
    from utils.export.torch_export import export_onnx

    net, x = torch.nn.Linear(4, 2), torch.ones(2, 4)
    whole = export_onnx(net, x, tmp_path / "whole", exporter=exporter)
    for form, wanted in zip(FORMS, whole, strict=True):
        (result,) = export_onnx(net, x, tmp_path / form / "whole", forms=[form], exporter=exporter)
        assert result.path.read_bytes() == wanted.path.read_bytes()
        assert [path.name for path in result.path.parent.iterdir()] == [wanted.path.name]


@pytest.mark.slow
@pytest.mark.torch
def test_failed_single_form_raises(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxsim")
    from utils.export.onnx_files import ExportError
    from utils.export.torch_export import export_onnx

    class Large(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: object) -> object:
            return x * 1e6  # type: ignore[operator]

    with pytest.raises(ExportError, match=r"above float16.*; no file was written"):
        export_onnx(Large(), torch.ones(2, 4), tmp_path / "net", forms=["float16_dyn"])
    assert [one.path.name for one in export_onnx(Large(), torch.ones(2, 4), tmp_path / "net", forms=["dyn"])] == [
        "net_dyn.onnx"
    ]


def test_forms_are_ordered_and_float16_is_optional() -> None:
    assert chosen_forms(["float16_dyn", "static", "static"]) == ("static", "float16_dyn")
    assert chosen_forms(FORMS, float16=False) == ("static", "dyn")
    assert chosen_forms("dyn") == ("dyn",)


@pytest.mark.parametrize(
    ("forms", "float16", "message"),
    [
        (["float16"], True, "unknown form 'float16'; did you mean 'float16_dyn'?"),
        ([], True, "no form"),
        (["float16_dyn"], False, "no form"),
    ],
)
def test_invalid_forms_raise(forms: list[str], float16: bool, message: str) -> None:
    with pytest.raises(ConfigError, match=message.replace("?", r"\?")):
        chosen_forms(forms, float16)


def test_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_forms(parser)
    add_exporter(parser)
    assert parser.parse_args([]).forms == list(FORMS)
    assert parser.parse_args([]).exporter is None
    assert parser.parse_args(["--exporter", "torchscript"]).exporter == "torchscript"
    assert parser.parse_args(["--forms", "dyn", "float16_dyn"]).forms == ["dyn", "float16_dyn"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--forms", "half"])
    assert "invalid choice: 'half'" in capsys.readouterr().err
