"""The kernels of nn.SyncBatchNorm: several parts of a batch give the batch normalisation of the whole."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch_sdaa  # noqa: E402, F401 -- names the device

EPS = 1e-5
PARTS = (3, 1, 4)
"""Number of samples of each process."""


def whole(dtype: Any) -> tuple[Any, Any, Any, Any]:
    """Return an input (8 x 5 x 3 x 2), its gradient, weight and bias (5 each), on the device."""
    made = torch.Generator().manual_seed(0)
    x, g = (torch.randn(8, 5, 3, 2, generator=made).mul(2).add(3).to(dtype).to("sdaa") for _ in range(2))
    w, b = (torch.randn(5, generator=made).to("sdaa") for _ in range(2))
    return x, g, w, b


def reference(x: Any, g: Any, w: Any, b: Any, means: Any, squares: Any) -> list[Any]:
    """Return output and gradients of batch normalisation on the CPU, in float64; running statistics in place."""
    x, g, w, b = (t.cpu().double().requires_grad_() for t in (x, g, w, b))
    y = torch.nn.functional.batch_norm(x, means, squares, w, b, training=True, momentum=0.25, eps=EPS)
    return [y.detach(), *torch.autograd.grad(y, [x, w, b], g)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_parts_of_a_batch_are_normalised_as_one(dtype: Any) -> None:
    x, g, w, b = whole(dtype)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    means, squares = torch.zeros(5, dtype=torch.float64), torch.ones(5, dtype=torch.float64)
    expected = reference(x, g, w, b, means, squares)
    running = [torch.zeros(5, device="sdaa", dtype=wide), torch.ones(5, device="sdaa", dtype=wide)]
    parts, grads = x.split(PARTS), g.split(PARTS)
    stats = [torch.batch_norm_stats(part, EPS) for part in parts]
    assert all(value.dtype is wide and value.shape == (5,) for pair in stats for value in pair)
    counts = torch.tensor([float(part.numel() // 5) for part in parts], device="sdaa", dtype=wide)
    mean, invstd = torch.batch_norm_gather_stats_with_counts(
        x, torch.stack([s[0] for s in stats]), torch.stack([s[1] for s in stats]), *running, 0.25, EPS, counts
    )
    y = torch.cat([torch.batch_norm_elemt(part, w, b, mean, invstd, EPS) for part in parts])
    sums = [
        torch.batch_norm_backward_reduce(d, p, mean, invstd, w, True, True, True)
        for d, p in zip(grads, parts, strict=True)
    ]
    total, apart, of_weight, of_bias = (sum(values) for values in zip(*sums, strict=True))
    back = [
        torch.batch_norm_backward_elemt(d, p, mean, invstd, w, total, apart, counts.int())
        for d, p in zip(grads, parts, strict=True)
    ]
    assert (y.dtype, y.device.type) == (dtype, "sdaa")
    loose = {torch.float16: 1e-2, torch.bfloat16: 1e-1}.get(dtype, 2e-5)
    for ours, theirs in zip((y, torch.cat(back), of_weight, of_bias), expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=loose, atol=loose)
    for ours, theirs in zip(running, (means, squares), strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-6)


def test_equal_counts_and_no_weight() -> None:
    x, g, _, _ = whole(torch.float32)
    mean, invstd = torch.batch_norm_stats(x, EPS)
    gathered = torch.batch_norm_gather_stats(x, mean[None], invstd[None], None, None, 0.1, EPS, x.numel() // 5)
    for ours, theirs in zip(gathered, (mean, invstd), strict=True):
        torch.testing.assert_close(ours, theirs)
    y = torch.batch_norm_elemt(x, None, None, mean, invstd, EPS)
    torch.testing.assert_close(y.cpu(), torch.nn.functional.batch_norm(x.cpu(), None, None, training=True))
    sums = torch.batch_norm_backward_reduce(g, x, mean, invstd, None, True, False, False)
    assert sums[2:] == (None, None)
    assert sums[0].device.type == "sdaa"
