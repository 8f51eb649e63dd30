"""Operators in compiled graphs compared with the uncompiled device on PyTorch's samples; ``.ci/long`` runs all."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from tests.torch_sdaa.dynamo import compiled_operators  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

FEW = ("where", "cat", "addmm", "expand")
"""A view, a selection, a product with empty tensors, and concatenations."""

SOME = (
    "as_strided", "index_put", "nn.functional.batch_norm", "nn.functional.conv2d", "nn.functional.dropout",
    "nn.functional.layer_norm", "nn.functional.max_pool2d", "nn.functional.scaled_dot_product_attention", "sort",
    "topk",
)  # fmt: skip
"""One of each family; ``topk`` and ``sort`` are left to the device."""

MORE = (
    "add", "amax", "as_strided", "as_strided_scatter", "bmm", "chunk", "clamp", "cumsum", "div", "gather", "index_put",
    "index_select", "mean", "max.reduction_with_dim", "nn.functional.adaptive_avg_pool2d", "nn.functional.avg_pool2d",
    "nn.functional.batch_norm", "nn.functional.conv2d", "nn.functional.conv_transpose2d", "nn.functional.cross_entropy",
    "nn.functional.dropout", "nn.functional.embedding", "nn.functional.gelu", "nn.functional.group_norm",
    "nn.functional.interpolate", "nn.functional.layer_norm", "nn.functional.max_pool2d", "nn.functional.pad",
    "nn.functional.scaled_dot_product_attention", "multinomial", "pow", "prod", "remainder", "scatter_add", "softmax",
    "sort", "split", "sum", "topk", "tril", "unbind", "var_mean", "view",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    log = logging.getLogger("torch_sdaa.dynamo")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def _checked(name: str, kind: str, most: int) -> None:
    found = [compiled_operators.counted(info, kind, 1e9, most) for info in compiled_operators.infos([name])]
    assert found, f"PyTorch has no samples of {name}"
    assert not [line for each in found for line in each.wrong]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", FEW)
def test_a_few_operators(name: str) -> None:
    _checked(name, "float32", 1)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["float32", "autocast"])
@pytest.mark.parametrize("name", SOME)
def test_some_operators(name: str, kind: str) -> None:
    _checked(name, kind, 2)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.long
@pytest.mark.parametrize("kind", ["float32", "int64", "bool", "autocast"])
@pytest.mark.parametrize("name", MORE)
def test_more_operators(name: str, kind: str) -> None:
    _checked(name, kind, 4)


def test_the_comparison_detects_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_sdaa.dynamo.aten import TABLE

    (info,) = compiled_operators.infos(["sub"])
    monkeypatch.setitem(TABLE, torch.ops.aten.sub.Tensor, TABLE[torch.ops.aten.add.Tensor])
    assert "too far" in compiled_operators.counted(info, "float32", 1e9, 1).wrong[0]
