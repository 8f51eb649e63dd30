"""A block of a diffusion model with a timestep embedding: errors of float16 and bfloat16 are near their minimum."""

from __future__ import annotations

import importlib.util
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from support import require_bfloat16

from engine import EngineSpec, open_engine

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

STEPS = [999, 501, 37, 763]


class Block(torch.nn.Module):
    """Residual block of a U-Net, as in DDPM: (images, embedding) to images."""

    def __init__(self, given: int, made: int, width: int) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList([torch.nn.GroupNorm(4, given), torch.nn.GroupNorm(4, made)])
        self.convs = torch.nn.ModuleList(
            [torch.nn.Conv2d(given, made, 3, padding=1), torch.nn.Conv2d(made, made, 3, padding=1)]
        )
        self.step, self.skip = torch.nn.Linear(width, made), torch.nn.Conv2d(given, made, 1)

    def forward(self, x: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        silu = torch.nn.functional.silu
        inner = self.convs[0](silu(self.norms[0](x))) + self.step(silu(embedding))[:, :, None, None]
        return self.skip(x) + self.convs[1](silu(self.norms[1](inner)))


class Denoiser(torch.nn.Module):
    """(images, timesteps) to noise, with sinusoidal embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.Conv2d(16, 3, 3, padding=1)
        self.embed = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 64))
        self.blocks = torch.nn.ModuleList([Block(16, 32, 64), Block(32, 16, 64)])
        self.register_buffer("frequencies", torch.exp(-math.log(10000) * torch.arange(16) / 16))

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        angles = steps[:, None].to(x.dtype) * self.frequencies[None].to(x.dtype)
        embedding = 4 * self.embed(torch.cat([torch.sin(angles), torch.cos(angles)], 1))
        x = self.first(x)
        for block in self.blocks:
            x = block(x, embedding)
        return self.last(x)


@pytest.fixture(scope="module", params=[torch.int64, torch.float32], ids=["int64", "float32"])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The file, its inputs, and PyTorch's outputs in float32 and half."""
    torch.manual_seed(0)
    model = Denoiser().eval()
    x, steps = torch.randn(4, 3, 16, 16), torch.tensor(STEPS, dtype=request.param)
    path = tmp_path_factory.mktemp("denoiser") / "model.onnx"
    axes = {"x": {0: "N"}, "steps": {0: "N"}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x, steps), str(path), input_names=list(axes), dynamic_axes=axes, dynamo=False)
    with torch.no_grad():
        exact = model(x, steps).numpy()
        half = model.half()(x.half(), steps).float().numpy()
    return path, [x.numpy(), steps.numpy()], exact, half


def error(exported, target: str, dtype: str) -> float:  # type: ignore[no-untyped-def]
    path, arrays, exact, _ = exported
    with open_engine(target, EngineSpec(Path(path), batch_size=4, dtype=dtype)) as engine:
        given = [array.astype(tensor.dtype) for array, tensor in zip(arrays, engine.inputs, strict=True)]
        return relative(np.asarray(engine(given)), exact)


def relative(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want))


@pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="OpenVINO is not installed")
def test_bfloat16(exported) -> None:  # type: ignore[no-untyped-def]
    require_bfloat16()
    assert error(exported, "cpu", "bfloat16") < 0.012


@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_float16(exported, target: str) -> None:  # type: ignore[no-untyped-def]
    assert error(exported, target, "float16") < 1.5 * relative(exported[3], exported[2])
    assert error(exported, target, "float32") < 1e-4
