"""teco ops on a torch module before its export."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine import ConfigError, TecoInferError
from toolkit.commands.ops import main

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MODULE = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.act = torch.nn.Conv2d(3, 4, 3), torch.nn.GELU()
    def forward(self, x):
        return self.act(self.conv(x))
@torch.library.custom_op("opstest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@twice.register_fake
def _(x):
    return torch.empty_like(x)
class Odd(torch.nn.Module):
    def forward(self, x):
        return torch.ops.opstest.twice(torch.relu(x))
class Ids(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)
    def forward(self, ids, mask=None):
        return self.table(ids) if mask is None else self.table(ids) * mask
class Any(torch.nn.Module):
    def forward(self, *inputs):
        return inputs[0] + inputs[1]
class ByData(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
class Lost(torch.nn.Module):
    def forward(self, x):
        raise KeyError("lost")
class Sized(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
class Mine(torch.nn.LSTM):
    def __init__(self):
        super().__init__(4, 4)
class Own(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
    def forward(self, x):
        return torch.fft.fft(x)
class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.drop = torch.nn.ReLU(), torch.nn.Dropout()
    def forward(self, x):
        return torch.linalg.svd(self.act(x))[1]
class Picked(torch.nn.Module):
    def forward(self, x):
        return x[x > 0]
class Brain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x.bfloat16()).float()
number = 3
"""


@pytest.mark.slow
def test_torch_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODULE, encoding="utf-8")
    assert main([f"{file}:Net"]) == 0
    assert "Conv (nn.Conv2d)" in capsys.readouterr().out
    out = tmp_path / "out.json"
    assert main([f"{file}:Net", "--shape", "x=1,3,8,8", "--json", str(out)]) == 0
    written = json.loads(out.read_text(encoding="utf-8"))
    assert {row["op"] for row in written["rows"]} >= {"Conv", "Gelu"}
    assert any("convolution" in one["name"] or "conv2d" in one["name"] for one in written["torch_operators"])
    assert main([f"{file}:Odd", "--shape", "x=1,3,8,8"]) == 1
    text = capsys.readouterr().out
    assert "opstest.twice.default" in text
    assert "lacks opstest.twice.default" in text


@pytest.mark.slow
def test_torch_inputs_by_name_and_dtype(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = tmp_path / "net.py", tmp_path / "out.json"
    file.write_text(MODULE, encoding="utf-8")
    flags = ["--shape", "mask=1,5,4", "--shape", "ids=1,5", "--input_dtype", "ids=int64", "--json", str(out)]
    assert main([f"{file}:Ids", *flags]) == 0
    rows = {row["op"]: row for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert rows["Gather"]["reads"] == "float32 int64"
    assert "Mul" in rows
    assert main([f"{file}:Any", "--shape", "a=2,3", "--shape", "b=2,3"]) == 0
    assert "Add" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("Nothing", [], "has no 'Nothing'"),
        ("number", [], "is of type int, not a torch module"),
        ("Sized", [], "without required arguments"),
        ("Ids", ["--shape", "x=1,5"], "no argument 'x'; its arguments: ids, mask"),
        ("Ids", ["--shape", "mask=1,5,4"], "argument 'ids' of forward is missing"),
        ("Ids", ["--shape", "ids=1,5"], "torch.export cannot trace Ids"),
        ("Ids", ["--input_dtype", "ids=int64"], "pass --shape ids=... too"),
        ("Ids", ["--input_dtype", "ids=int63"], "write INPUT=int64"),
        (
            "ByData",
            ["--shape", "x=2"],
            r"ByData: .*depends on values \(net\.py, line 29\)",
        ),
        ("Lost", ["--shape", "x=2"], "cannot trace Lost: KeyError: 'lost'"),
    ],
)
def test_torch_errors_are_one_line(
    name: str, flags: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "net.py"
    file.write_text(MODULE, encoding="utf-8")
    with pytest.raises(TecoInferError, match=message) as caught:
        main([f"{file}:{name}", *flags])
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("text", ["def broken(:", "raise RuntimeError('no card')"])
def test_import_error_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cannot import .*bad\.py: \w+Error: ") as caught:
        main([f"{file}:Net"])
    assert "\n" not in str(caught.value)


def test_file_can_import_neighbours(tmp_path: Path) -> None:
    (tmp_path / "beside_for_ops.py").write_text("WIDTH = 4", encoding="utf-8")
    file = tmp_path / "net.py"
    file.write_text(
        "from __future__ import annotations\nimport dataclasses\nimport torch\nfrom beside_for_ops import WIDTH\n"
        "@dataclasses.dataclass\nclass Size:\n    width: int = WIDTH\n"
        "def net():\n    return torch.nn.Linear(Size().width, 2)\n",
        encoding="utf-8",
    )
    path = list(sys.path)
    assert main([f"{file}:net"]) == 0
    assert sys.path == path


@pytest.mark.parametrize(
    ("name", "printed"), [("Mine", "LSTM (nn.LSTM)"), ("Own", "? (Own)"), ("Parts", "unknown (1 stated, 1 unknown)")]
)
def test_submodules_do_not_determine_whole(
    name: str, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.py").write_text(MODULE, encoding="utf-8")
    assert main([f"{tmp_path / 'net.py'}:{name}"]) == 0
    found = capsys.readouterr().out
    assert printed in found
    assert "Dropout" not in found


@pytest.mark.slow
def test_data_dependent_sizes_of_torch_module(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(MODULE, encoding="utf-8")
    assert main([f"{tmp_path / 'net.py'}:Picked", "--shape", "x=2,3"]) == 0
    assert "note: outputs with data-dependent sizes: NonZero" in capsys.readouterr().out


@pytest.mark.slow
def test_missing_dtype_is_shown_with_operator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(MODULE, encoding="utf-8")
    assert main([f"{tmp_path / 'net.py'}:Brain", "--shape", "x=2,3"]) == 1
    assert "sdaa lacks Cast in bfloat16, Relu in bfloat16 (" in capsys.readouterr().out


def test_integer_inputs_need_dtype(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODULE, encoding="utf-8")
    with pytest.raises(TecoInferError, match=r"--input_dtype ids=int64$"):
        main([f"{tmp_path / 'net.py'}:Ids", "--shape", "ids=1,2"])
