"""Masks of both torch exporters: no error in compare or overflow, but a scaled layer after them is."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from toolkit.cli import execute
from toolkit.graph.nodes import load_named

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]


FORMS = ("function", "minus infinity", "least", "clamped")


class Attends(torch.nn.Module):
    """Attention layer for each form of padding mask and causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 48) for _ in FORMS)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = mask[:, None, None, :].bool() & torch.tril(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool))
        for layer, form in zip(self.layers, FORMS, strict=True):
            q, k, v = layer(x)[:, None].chunk(3, -1)
            x = x + self.mixed(form, q, k, v, kept)[:, 0]
        return x

    def mixed(self, form: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        """Return the attention output with one form of the mask."""
        if form == "function":
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=kept)
        scores = q @ k.transpose(2, 3) / 4.0
        least = torch.finfo(torch.float32).min
        low = torch.zeros(kept.shape).masked_fill(~kept, least)
        if form == "minus infinity":
            scores = scores.masked_fill(~kept, float("-inf"))
        else:
            scores = scores + low if form == "least" else torch.max(scores + 2 * low, torch.tensor(least))
        return torch.softmax(scores, -1) @ v


@pytest.mark.long
@pytest.mark.parametrize("dynamo", [True, False])
def test_masks_of_both_exporters(dynamo: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    arrays = {"x": np.random.default_rng(0).normal(size=(2, 6, 16)).astype(np.float32)}
    arrays["mask"] = np.int64([[1] * 6, [1] * 3 + [0] * 3])
    given = tuple(torch.from_numpy(array) for array in arrays.values())
    path, data = tmp_path / "model.onnx", tmp_path / "data.npz"
    np.savez(data, **arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        how = {"dynamo": dynamo, "input_names": list(arrays), "opset_version": 18, "verbose": False}
        torch.onnx.export(Attends().eval(), given, path, **how)
    assert execute(["compare", str(path), "--data", str(data)]) == 0
    assert execute(["overflow", str(path), "--data", str(data)]) == 0
    model = load_named(path)
    products = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul")]
    weights = {tensor.name: tensor for tensor in model.graph.initializer if len(tensor.dims) == 2}
    scaled = [node for node in products if weights.keys() & set(node.input)][1]
    (name,) = weights.keys() & set(scaled.input)
    array = numpy_helper.to_array(weights[name]) * np.float32(1.1)
    weights[name].CopyFrom(numpy_helper.from_array(array, name))
    onnx.save(model, str(tmp_path / "wrong.onnx"))
    words = ["compare", str(tmp_path / "wrong.onnx"), "--a_model", str(path), "--data", str(data)]
    assert execute([*words, "--json", str(tmp_path / "found.json")]) == 1
    bad = json.loads((tmp_path / "found.json").read_text())["first_bad"]
    assert scaled.name in (bad["name"], *bad["fused"])
