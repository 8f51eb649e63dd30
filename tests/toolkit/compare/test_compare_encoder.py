"""Node names after conversion, fusion by rules, and fusion into kernels, on transformer encoders."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from toolkit.cli import execute
from toolkit.graph.trace import traced

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FUSING = """
import numpy as np
from onnx import numpy_helper
from engine.passes import rewrite

def use_passes(model):
    model = rewrite(model, ["gelu", "layer_norm", "attention"], opset=23)
    for tensor in model.graph.initializer:
        if tensor.name == FAULTY:
            value = numpy_helper.to_array(tensor) * np.float32(1.1)
            tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
    return model
"""


class Norm(torch.nn.Module):
    """Decomposed layer norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = torch.nn.Parameter(torch.rand(width) + 0.5), torch.nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift


class Attention(torch.nn.Module):
    """Decomposed attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (torch.nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part(x).reshape(1, 6, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1)
        return self.out((scores @ v).transpose(1, 2).reshape(1, 6, -1))


class Encoder(torch.nn.Module):
    """Encoder of torch, then a decomposed layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(width, 2, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.attention, self.linear = Norm(width), Attention(width, 4), torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(x)
        x = x + self.attention(self.norm(x))
        return x + torch.nn.functional.gelu(self.linear(x))


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an encoder with distinct random weights, exported by torch."""
    torch.manual_seed(0)
    network = Encoder().eval()
    for parameter in network.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("encoder") / "encoder.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(network, (torch.randn(1, 6, 16),), dynamo=True, verbose=False, opset_version=18)
    program.save(str(path))
    return path


def write_pass(path: Path, faulty: str = "") -> Path:
    path.write_text(f"FAULTY = {faulty!r}\n{FUSING}")
    return path


@pytest.mark.slow
def test_names_are_kept_by_conversion_and_fusion(encoder: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    words = ["compare", str(encoder), "--pass_path", str(write_pass(tmp_path / "fusing.py")), "--json", str(result)]
    assert execute(words) == 0
    made = json.loads(result.read_text())
    rows = {row["name"]: row for row in made["rows"]}
    with traced(encoder, "sdaa", pass_path=tmp_path / "fusing.py") as found:
        ops = {node.op_type for node in found.model.graph.node} if found.model else set()
    assert ops >= {"Gelu", "LayerNormalization", "Attention"}
    fused = [row for row in made["rows"] if row["fused"]]
    assert all("isolated_diff2" in row and row["isolated_diff2"] < 1e-3 for row in fused)
    inside = {name for row in fused for name in row["fused"]}
    assert len(inside) > 10
    for name in inside:
        assert rows[name]["status"].startswith("fused into "), rows[name]
    # every node is accounted for: compared, or inside one that is
    assert all(row["status"].startswith(("compared", "fused into")) for row in made["rows"])
    assert {row["module"] for row in fused} >= {"norm", "attention", "encoder.layers.0", "encoder.layers.1.linear2"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weight", "module"),
    [
        ("encoder.layers.1.linear1.bias", "encoder.layers.1.linear1"),  # a plain node
        ("norm.scale", "norm"),  # inside a layer norm that the pass fuses
        ("attention.out.bias", "attention.out"),
    ],
)
def test_wrong_weight_is_first_bad_node(
    encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], weight: str, module: str
) -> None:
    result = tmp_path / "result.json"
    file = write_pass(tmp_path / "faulty.py", weight)
    words = ["compare", str(encoder), "--pass_path", str(file), "--json", str(result)]
    assert execute([*words, "--threshold", "0.002"]) == 1
    printed = capsys.readouterr().out.splitlines()[-2]
    assert printed.startswith("first bad node: ")
    assert f"module {module}" in printed
    made = json.loads(result.read_text())
    assert made["first_bad"]["module"] == module
    bad = [row for row in made["rows"] if row.get("isolated_diff2", 0) > 0.002]
    assert [row["module"] for row in bad] == [module]
    later = [row for row in made["rows"] if row["index"] > bad[0]["index"] and "diff2" in row]
    assert max(row["diff2"] for row in later) > 0.002
