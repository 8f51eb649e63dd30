"""Models exported by torch: the batch is found, and the proof agrees with running them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from engine.batching.find import find_batching
from engine.signature import Array

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

nn = torch.nn
ROWS = 3
BATCH = torch.export.Dim("batch")
SEQ = torch.export.Dim("seq", max=32)


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, kind: Any, batch_first: bool, both: bool) -> None:
        super().__init__()
        self.layers = kind(6, 4, num_layers=2, batch_first=batch_first, bidirectional=both)
        self.head = nn.Linear(8 if both else 4, 2)

    def forward(self, x: Any) -> Any:
        y, state = self.layers(x)
        return self.head(y), state[0] if isinstance(state, tuple) else state


class Stateful(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(6, 4, batch_first=True)

    def forward(self, x: Any, h: Any, c: Any) -> Any:
        y, (hn, cn) = self.layer(x, (h, c))
        return y[:, -1], hn, cn


class Encoder(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(32, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: Any, mask: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])[None])
        x = self.layers(x, src_key_padding_mask=mask == 0)
        return x[:, 0], (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


class Detector(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.body, self.near, self.far = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 18, 1), nn.Conv2d(8, 18, 1)
        self.up = nn.Upsample(scale_factor=2)

    def forward(self, x: Any) -> Any:
        f, parts = torch.relu(self.body(x)), []
        for y in (self.near(f), self.far(self.up(f))):
            b, _, h, w = y.shape
            parts.append(y.view(b, 2, 9, h, w).permute(0, 1, 3, 4, 2).reshape(b, -1, 9))
        found = torch.cat(parts, 1)
        best, label = found[..., 4:].softmax(-1).max(-1)
        score, index = best.topk(5, dim=1)
        boxes = torch.gather(found[..., :4], 1, index[..., None].expand(-1, -1, 4))
        return score, boxes, torch.gather(label, 1, index)


class Vision(nn.Module):  # type: ignore[misc]
    """Vision transformer: patches, class token, position embedding, attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 1)

    def forward(self, x: Any) -> Any:
        y = self.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([self.token.expand(y.shape[0], -1, -1), y], 1) + self.places
        return self.layers(y)[:, 0]


class Film(nn.Module):  # type: ignore[misc]
    """Images of a video, folded into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        b, t = x.shape[:2]
        return self.head(self.conv(x.flatten(0, 1)).mean((2, 3))).view(b, t, -1).mean(1)


class Centred(nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x - x.mean(0)


def words() -> tuple[Any, ...]:
    return torch.randint(0, 50, (ROWS, 7)), torch.ones(ROWS, 7)


def sequence(*shape: int) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.randn(*shape),)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, ...]], list[dict[int, Any]], tuple[int, ...]]] = {
    "gru": (lambda: Recurrent(nn.GRU, True, True), sequence(ROWS, 5, 6), [{0: BATCH}], (0, 1)),
    "gru, time first": (lambda: Recurrent(nn.GRU, False, True), sequence(5, ROWS, 6), [{1: BATCH}], (1, 1)),
    "lstm": (lambda: Recurrent(nn.LSTM, True, False), sequence(ROWS, 5, 6), [{0: BATCH, 1: SEQ}], (0, 1)),
    "lstm, time first": (lambda: Recurrent(nn.LSTM, False, False), sequence(5, ROWS, 6), [{0: SEQ, 1: BATCH}], (1, 1)),
    "lstm with states": (
        Stateful,
        lambda: (torch.randn(ROWS, 5, 6), torch.randn(1, ROWS, 4), torch.randn(1, ROWS, 4)),
        [{0: BATCH}, {1: BATCH}, {1: BATCH}],
        (0, 1, 1),
    ),
    "encoder": (Encoder, words, [{0: BATCH, 1: SEQ}] * 2, (0, 0)),
    "detector": (Detector, sequence(ROWS, 3, 16, 16), [{0: BATCH}], (0, 0, 0)),
    "vision": (Vision, sequence(ROWS, 3, 16, 16), [{0: BATCH}], (0,)),
    "film": (Film, sequence(ROWS, 4, 3, 8, 8), [{0: BATCH}], (0,)),
}
"""Model, inputs, where the batch is in each, and where it comes out."""


def exported(model: Any, inputs: tuple[Any, ...], shapes: Any, path: Path) -> onnx.ModelProto:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from torch
        torch.onnx.export(
            model.eval(), inputs, path, dynamo=True, opset_version=18, dynamic_shapes=shapes, external_data=False,
            verbose=False,
        )  # fmt: skip
    return onnx.load(str(path))


def cut(arrays: list[Array], axes: tuple[int | None, ...], start: int, end: int) -> list[Array]:
    return [a if k is None else np.take(a, range(start, end), k) for a, k in zip(arrays, axes, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("name", MODELS)
def test_exported_models_are_proven_and_can_be_split(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    build, make, shapes, outputs = MODELS[name]
    inputs, path = make(), tmp_path / "model.onnx"
    found = find_batching(exported(build(), inputs, tuple(shapes), path))
    axes = tuple(next(axis for axis, dim in shape.items() if dim is BATCH) for shape in shapes)
    assert (found.inputs, found.outputs, found.reason) == (axes, outputs, "")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names, arrays = [one.name for one in session.get_inputs()], [one.numpy() for one in inputs]
    whole = session.run(None, dict(zip(names, arrays, strict=True)))
    parts = [session.run(None, dict(zip(names, cut(arrays, axes, *at), strict=True))) for at in ((0, 1), (1, ROWS))]
    for i, want in enumerate(whole):
        np.testing.assert_allclose(np.concatenate([part[i] for part in parts], outputs[i]), want, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gru, time first", "lstm with states", "encoder", "detector", "vision"])
def test_models_exported_with_a_fixed_batch_are_proven(name: str, tmp_path: Path) -> None:
    build, make, _, outputs = MODELS[name]
    found = find_batching(exported(build(), make(), None, tmp_path / "model.onnx"))
    if "time first" in name:  # only visible from the layer
        assert found.inputs == (1,)
    assert (found.independent, found.outputs) == (True, outputs), found.reason


@pytest.mark.long
def test_the_combining_operator_is_reported(tmp_path: Path) -> None:
    model = exported(Centred(), (torch.randn(ROWS, 4),), ({0: BATCH},), tmp_path / "model.onnx")
    found = find_batching(model)
    assert found.independent is False
    assert "ReduceMean" in found.reason


@pytest.mark.long
@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5", "resnet18", "mobilenet_v3_small"])
def test_torchvision_networks(name: str, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    from utils.export.networks.torchvision_models import build

    model, *_ = build(name, "random")
    found = find_batching(exported(model, (torch.randn(2, 3, 64, 64),), ({0: BATCH},), tmp_path / "model.onnx"))
    assert (found.independent, found.inputs, found.outputs) == (True, (0,), (0,)), found.reason
