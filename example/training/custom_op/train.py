"""Train with a custom operator on the simulated card, check its gradients, and export the model to ONNX.

    python train.py --operator python     # gate_python.py
    python train.py --operator cpp        # gate_cpp.py and gate_cpp.cpp

The model, which is small on purpose, classifies points by quadrant.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxscript

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import ConfigError, EngineSpec, add_version, open_engine
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli
from utils.places import check_folder

with needed(__file__):
    import torch

    from utils.export.torch_export import export_onnx

op = onnxscript.opset18
STEPS, POINTS, SEED = 200, 256, 7
ON_DEVICE = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
"""Tests of ``opcheck`` that run on any device; its ``test_autograd_registration`` supports CPU, CUDA and XPU only."""


class Model(torch.nn.Module):
    """Two layers with the operator between them."""

    def __init__(self, gate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.gate, self.value, self.weight, self.answer = (
            gate,
            *(torch.nn.Linear(2, 16) for _ in "xg"),
            torch.nn.Linear(16, 4),
        )

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        """Return the scores of the quadrants (n x 4) for points (n x 2)."""
        scores: torch.Tensor = self.answer(self.gate(self.value(points), self.weight(points)))
        return scores


def as_onnx(x: Any, g: Any) -> Any:
    """Express the operator in standard ONNX operators, so that it runs on every engine."""
    return op.Mul(x, op.Mul(g, op.Sigmoid(g)))


def make_ready(device: str) -> None:
    """Register the device ``sdaa``, which the operators' kernels need on every device, and check the requested device.

    Raises:
        ConfigError: it is not available, or the extension does not compile.
    """
    try:
        import torch_sdaa  # noqa: F401 - it makes the device

        torch.empty(0, device=device)
    except ImportError as error:
        raise ConfigError(str(error)) from error
    except (RuntimeError, AssertionError) as error:  # the latter: no CUDA in this torch
        raise ConfigError(f"--device {device}: {str(error).splitlines()[0]}; use cpu, sdaa or sdaa:1") from error


def operator(kind: str) -> Any:
    """Return the operator's overload: ``python`` or ``cpp``."""
    importlib.import_module(f"gate_{kind}")
    return torch.ops.zoo.gate.default if kind == "python" else torch.ops.zoo_cpp.gate.default


def proven(gate: Any, device: str) -> None:
    """Check the operator's registrations and its gradients; errors are raised by torch."""
    made = torch.Generator().manual_seed(SEED)
    x, g = (torch.randn(3, 5, generator=made, dtype=torch.float64).to(device).requires_grad_() for _ in range(2))
    torch.library.opcheck(gate, (x, g), test_utils=ON_DEVICE)
    torch.library.opcheck(gate, (x.detach().cpu().requires_grad_(), g.detach().cpu().requires_grad_()))
    torch.autograd.gradcheck(gate, (x, g))


def trained(gate: Any, device: str) -> tuple[Model, list[float]]:
    """Return the model after ``STEPS`` steps on a device, and the loss of every step; the same on every device."""
    torch.manual_seed(SEED)
    model = Model(gate).to(device)
    points = (torch.rand(POINTS, 2) * 2 - 1).to(device)
    quarters = (points[:, 0] > 0).long() * 2 + (points[:, 1] > 0).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points), quarters)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def answers(file: Path, points: np.ndarray) -> dict[str, np.ndarray]:
    """Return the exported model's outputs on the engines ``onnx`` and ``sdaa``, in float32."""
    found = {}
    for target in ("onnx", "sdaa"):
        with open_engine(target, EngineSpec(ckpt=file, input_size=((1, 2),), dtype="float32")) as engine:
            found[target] = np.asarray(engine(points))
    return found


def main() -> int:
    """Run all steps; return 1 if the engines do not agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--operator", choices=("python", "cpp"), default="python", help="where it is written")
    parser.add_argument("--device", default="sdaa", help="sdaa, sdaa:1, or cpu (default: sdaa)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    args = parser.parse_args()
    check_folder("--out", args.out)
    make_ready(args.device)
    gate = operator(args.operator)
    proven(gate, args.device)
    print(f"{gate.name()} on {args.device}: opcheck and gradcheck passed")
    model, losses = trained(gate, args.device)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f} in {STEPS} steps")
    stem = args.out / f"gate_{args.operator}"
    for result in export_onnx(
        model.cpu(), torch.zeros(1, 2), stem, float16=False, custom_translation_table={gate: as_onnx}
    ):
        print(result)
    found = answers(stem.with_name(f"{stem.name}_dyn.onnx"), np.random.default_rng(SEED).random((8, 2), np.float32))
    equal = bool((found["onnx"] == found["sdaa"]).all())
    print(f"target sdaa {'equals' if equal else 'differs from'} target onnx on 8 points")
    return 0 if equal else 1


if __name__ == "__main__":
    cli.run(main)
