"""Export an operator that neither PyTorch's exporter nor ONNX Runtime knows.

``custom::add`` takes a tensor and a whole number y and has two outputs, x + y and x + 2 * y. Two files are written:

- ``custom_add.onnx`` holds a bare node ``custom::Add``: for a runtime with a kernel of that name. ONNX Runtime
  has none, so the file is checked and not run.
- ``custom_add_standard.onnx`` expresses the operator in standard operators. Prefer this form where it is possible: it
  runs on every runtime.

Each comes as a static file and as a ``_dyn`` one, whose batch is dynamic.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import onnx
import onnxscript

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    import torch

    from utils.export.torch_export import export_onnx

custom = onnxscript.values.Opset("custom", 1)
op = onnxscript.opset18


@torch.library.custom_op("custom::add", mutates_args=())
def custom_add(x: torch.Tensor, y: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return x + y and x + 2 * y."""
    return x + y, x + y * 2


@custom_add.register_fake
def _(x: torch.Tensor, y: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the shapes and dtypes of the outputs, for tracing."""
    return torch.empty_like(x), torch.empty_like(x)


def schema() -> onnx.defs.OpSchema:
    """Return the ONNX schema of ``custom::Add``: its inputs, outputs and attributes."""
    parameter, kinds = onnx.defs.OpSchema.FormalParameter, ["tensor(float)", "tensor(float16)", "tensor(int64)"]
    return onnx.defs.OpSchema(
        "Add",
        "custom",
        1,
        inputs=[parameter("x", "T")],
        outputs=[parameter("first", "T"), parameter("second", "T")],
        type_constraints=[("T", kinds, "")],
        attributes=[onnx.defs.OpSchema.Attribute("y", onnx.defs.OpSchema.AttrType.INT)],
    )


def bare_node(x: Any, y: int) -> Any:
    """Write a graph of one node, ``custom::Add`` with the attribute y."""
    return onnxscript.values.Op(custom, "Add", schema())(x, y=y)


def standard_nodes(x: Any, y: int) -> Any:
    """Write the same in standard operators."""
    step = op.CastLike(op.Constant(value_int=y), x)
    first = op.Add(x, step)
    return first, op.Add(first, step)


class Model(torch.nn.Module):
    """A model with nothing but the custom operator."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return x + 1 and x + 2."""
        return torch.ops.custom.add(x, 1)


def main() -> int:
    """Write both files and print whether each ran."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    out = parser.parse_args().out
    x = torch.tensor([[1, -2, 3]])
    options = {"input_names": ["x"], "output_names": ["add1", "add2"], "float16": False}
    for stem, translation in (("custom_add", bare_node), ("custom_add_standard", standard_nodes)):
        table = {torch.ops.custom.add.default: translation}
        for result in export_onnx(Model(), x, out / stem, **options, custom_translation_table=table):
            print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
