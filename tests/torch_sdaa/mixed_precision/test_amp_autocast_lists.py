"""Autocast's lists: every operator of the installed header, compared with PyTorch's autocast for CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch._subclasses import FakeTensorMode  # noqa: E402

pytestmark = pytest.mark.torch

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
_LISTS = {
    "LOWER_PRECISION_FP": "lower",
    "FP32": "float32",
    "FP32_SET_OPT_DTYPE": "set_dtype",
    "PROMOTE": "promote",
}
LOW = (torch.float16, torch.bfloat16)
NO_KERNEL = "_scaled_dot_product_flash_attention"
"""CUDA's form of attention, without a kernel on the host; scripts call scaled_dot_product_attention."""


def _policies() -> dict[str, str]:
    """Return every operator of the header's lists, as ``name.overload``, with its list."""
    text, found = HEADER.read_text(encoding="utf-8"), {}
    for name, policy in _LISTS.items():
        (body,) = re.findall(rf"#define AT_FORALL_{name}\(_\)((?:[^\n]*\\\n)*[^\n]*)", text)
        for entry in re.findall(r"_\(([^)]*)\)", body):
            found[".".join(part.strip() for part in entry.split(","))] = policy
    (body,) = re.findall(r"#define AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE\(_\)((?:[^\n]*\\\n)*[^\n]*)", text)
    return found | dict.fromkeys(re.findall(r'"([\w.]+)"', body), "append_dtype")


POLICIES = _policies()


class Make:
    """Makes the operands of a call, the same numbers on every device and in every dtype."""

    def __init__(self, device: str, first: Any, others: Any) -> None:
        self.device, self.first, self.others = device, first, others
        self._made = 0
        self._generator = torch.Generator().manual_seed(0)

    def __call__(self, *shape: int) -> Any:
        """Return numbers between 0.1 and 0.9."""
        dtype = self.others if self._made else self.first
        self._made += 1
        if self.device == "cuda":  # there is none: shapes and dtypes alone
            return torch.empty(shape or (4, 4), dtype=dtype, device="cuda")
        # what float16 and bfloat16 both hold, so that a cast changes no number
        steps = torch.randint(1, 8, shape or (4, 4), generator=self._generator)
        return (steps / 8).to(dtype).to(self.device)

    def whole(self, *shape: int) -> Any:
        """Return class indices."""
        return (torch.empty if self.device == "cuda" else torch.zeros)(shape, dtype=torch.int64, device=self.device)


def _cell(gates: int, states: int = 1) -> Callable[[Make], Any]:
    def make(t: Make) -> Any:
        hidden = t() if states == 1 else [t(), t()]
        return t(), hidden, t(gates * 4, 4), t(gates * 4, 4), t(gates * 4), t(gates * 4)

    return make


def _convolution(extra: tuple[Any, ...]) -> Callable[[Make], Any]:
    return lambda t: (t(1, 2, 4, 4), t(3, 2, 2, 2), t(3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1, *extra)


def _one(t: Make) -> Any:
    return (t(),)


def _two(t: Make) -> Any:
    return t(), t()


def _upsample(dims: int, *extra: Any) -> Callable[[Make], Any]:
    return lambda t: (t(1, 2, *[4] * dims), [8] * dims, *extra)


CALLS: dict[str, Callable[[Make], Any]] = {
    "_convolution.deprecated": _convolution((False, False, False)),
    "_convolution": _convolution((False, False, False, False)),
    "convolution": _convolution(()),
    "conv1d": lambda t: (t(1, 2, 5), t(3, 2, 2)),
    "conv2d": lambda t: (t(1, 2, 5, 5), t(3, 2, 2, 2)),
    "conv3d": lambda t: (t(1, 2, 3, 3, 3), t(3, 2, 2, 2, 2)),
    "conv_tbc": lambda t: (t(5, 2, 3), t(2, 3, 4), t(4)),
    "conv_transpose1d": lambda t: (t(1, 2, 5), t(2, 3, 2)),
    "conv_transpose2d.input": lambda t: (t(1, 2, 5, 5), t(2, 3, 2, 2)),
    "conv_transpose3d.input": lambda t: (t(1, 2, 3, 3, 3), t(2, 3, 2, 2, 2)),
    "prelu": lambda t: (t() - 0.5, t(1)),
    "addmm": lambda t: (t(), t(), t()),
    "addmv": lambda t: (t(4), t(), t(4)),
    "addr": lambda t: (t(), t(4), t(4)),
    "einsum": lambda t: ("ij,jk->ik", [t(), t()]),
    "mv": lambda t: (t(), t(4)),
    "linear": lambda t: (t(), t(), t(4)),
    "addbmm": lambda t: (t(), t(2, 4, 4), t(2, 4, 4)),
    "baddbmm": lambda t: (t(2, 4, 4), t(2, 4, 4), t(2, 4, 4)),
    "bmm": lambda t: (t(2, 4, 4), t(2, 4, 4)),
    "chain_matmul": lambda t: ([t(), t()],),
    "linalg_multi_dot": lambda t: ([t(), t(), t()],),
    "_thnn_fused_lstm_cell": lambda t: (t(2, 16), t(2, 16), t(2, 4), t(16), t(16)),
    "_thnn_fused_gru_cell": lambda t: (t(2, 12), t(2, 12), t(2, 4), t(12), t(12)),
    "lstm_cell": _cell(4, 2),
    "gru_cell": _cell(3),
    "rnn_tanh_cell": _cell(1),
    "rnn_relu_cell": _cell(1),
    NO_KERNEL: lambda t: (t(1, 2, 4, 8), t(1, 2, 4, 8), t(1, 2, 4, 8)),
    "scaled_dot_product_attention": lambda t: (t(1, 2, 4, 8), t(1, 2, 4, 8), t(1, 2, 4, 8)),
    "pow.Tensor_Scalar": lambda t: (t(), 2.5),
    "pow.Scalar": lambda t: (2.5, t()),
    "layer_norm": lambda t: (t(), [4], t(4), t(4)),
    "native_layer_norm": lambda t: (t(), [4], t(4), t(4), 1e-5),
    "rms_norm": lambda t: (t(), [4], t(4)),
    "group_norm": lambda t: (t(2, 4, 3), 2, t(4), t(4)),
    "frobenius_norm.dim": lambda t: (t(), [1]),
    "nuclear_norm.dim": lambda t: (t(), [0, 1]),
    "poisson_nll_loss": lambda t: (t(), t(), True, False, 1e-8, 1),
    "cosine_embedding_loss": lambda t: (t(), t(), t(4)),
    "nll_loss": lambda t: (t(), t.whole(4)),
    "nll_loss2d": lambda t: (t(2, 3, 4, 4), t.whole(2, 4, 4)),
    "margin_ranking_loss": lambda t: (t(), t(), t()),
    "multilabel_margin_loss": lambda t: (t(), t.whole(4, 4)),
    "triplet_margin_loss": lambda t: (t(), t(), t()),
    "multi_margin_loss": lambda t: (t(), t.whole(4)),
    "renorm": lambda t: (t(), 2, 0, 1.0),
    "logsumexp": lambda t: (t(), [1]),
    "upsample_nearest1d": _upsample(1),
    "_upsample_nearest_exact1d": _upsample(1),
    "upsample_nearest2d": _upsample(2),
    "_upsample_nearest_exact2d": _upsample(2),
    "upsample_nearest3d": _upsample(3),
    "_upsample_nearest_exact3d": _upsample(3),
    "upsample_linear1d": _upsample(1, False),
    "upsample_bilinear2d": _upsample(2, False),
    "_upsample_bilinear2d_aa": _upsample(2, False),
    "upsample_trilinear3d": _upsample(3, False),
    "upsample_bicubic2d": _upsample(2, False),
    "_upsample_bicubic2d_aa": _upsample(2, False),
    "prod.dim_int": lambda t: (t(), 1),
    "softmax.int": lambda t: (t(), 1),
    "log_softmax.int": lambda t: (t(), 1),
    "cumprod": lambda t: (t(), 1),
    "cumsum": lambda t: (t(), 1),
    "linalg_matrix_norm": lambda t: (t(), 2),
    "sum.dim_IntList": lambda t: (t(), [1]),
    "norm.Scalar": lambda t: (t(), 2),
    "norm.ScalarOpt_dim": lambda t: (t(), 2, [1], False),
    "addcdiv": lambda t: (t(), t(), t()),
    "addcmul": lambda t: (t(), t(), t()),
    "bilinear": lambda t: (t(2, 4), t(2, 4), t(3, 4, 4), t(3)),
    "cross": lambda t: (t(3), t(3)),
    "dot": lambda t: (t(4), t(4)),
    "vdot": lambda t: (t(4), t(4)),
    "grid_sampler": lambda t: (t(1, 2, 4, 4), t(1, 3, 3, 2), 0, 0, False),
    "index_put": lambda t: (t(4), [t.whole(1)], t(1)),
    "tensordot": lambda t: (t(), t(), [1], [0]),
    "scatter_add": lambda t: (t(4), 0, t.whole(4), t(4)),
    **dict.fromkeys(("matmul", "mm", "linalg_vecdot", "pow.Tensor_Tensor", "cosine_similarity", "atan2"), _two),
    **dict.fromkeys(("hinge_embedding_loss", "kl_div", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"), _two),
    **dict.fromkeys(("soft_margin_loss", "binary_cross_entropy_with_logits", "dist", "cdist"), _two),
    **dict.fromkeys(("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p"), _one),
    **dict.fromkeys(("reciprocal", "rsqrt", "sinh", "tan", "softplus", "nuclear_norm", "pdist", "prod"), _one),
    **dict.fromkeys(("linalg_vector_norm", "linalg_matrix_norm.str_ord", "sum"), _one),
}


def _called(name: str, make: Make) -> list[Any]:
    """Return the tensors that an operator returns for our operands."""
    base, _, overload = name.partition(".")
    found = getattr(getattr(torch.ops.aten, base), overload or "default")(*CALLS[name](make))
    return list(found) if isinstance(found, (tuple, list)) else [found]


def _with_autocast(device: str, low: Any, call: Callable[[], Any]) -> Any:
    """Return the result of a call under a device's autocast, also for CUDA without a card."""
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, True)
    torch.set_autocast_dtype(device, low)
    torch.autocast_increment_nesting()
    try:
        return call()
    finally:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])


FAKE = FakeTensorMode()
UNSEEN = ("_thnn_fused_gru_cell", "gru_cell", "grid_sampler")
"""Operators that cannot run for CUDA without a card; the test of the registrations covers their lists."""


def _outcome(device: str, name: str, low: Any, first: Any, others: Any) -> Any:
    """Return the dtypes of an operator's results, or its error."""
    try:
        made = _with_autocast(device, low, lambda: _called(name, Make(device, first, others)))
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return [each.dtype for each in made]


def _on_cuda(name: str, low: Any, first: Any, others: Any) -> Any:
    if name in UNSEEN:
        return [_computed_in(POLICIES[name], low, first, others)] * (2 if name.startswith("_") else 1)
    with FAKE:
        return _outcome("cuda", name, low, first, others)


def _operands(low: Any) -> list[tuple[Any, Any]]:
    return [(torch.float32, torch.float32), (low, low), (torch.float32, low), (low, torch.float32)]


def test_the_header_is_read() -> None:
    sizes = {policy: list(POLICIES.values()).count(policy) for policy in set(POLICIES.values())}

    assert sizes["lower"] >= 33
    assert sizes["float32"] >= 59
    assert {"set_dtype", "promote", "append_dtype"} <= set(sizes)


def test_every_operator_of_the_header_is_called_here() -> None:
    assert set(CALLS) == set(POLICIES)


def test_the_device_registers_the_kernels_of_cuda() -> None:
    ours, theirs = (
        set(torch._C._dispatch_get_registrations_for_dispatch_key(key))
        for key in ("AutocastPrivateUse1", "AutocastCUDA")
    )

    assert {f"aten::{name}" for name in POLICIES} | {"aten::binary_cross_entropy"} == ours
    assert theirs - ours == {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}


@pytest.mark.parametrize("low", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", sorted(set(POLICIES) - {NO_KERNEL}))
def test_an_operator_has_the_result_dtype_of_cuda(name: str, low: Any) -> None:
    for first, others in _operands(low):
        found = _outcome("sdaa", name, low, first, others)

        assert found == _on_cuda(name, low, first, others)
        assert isinstance(found, list) or name == "linalg_matrix_norm", found  # which takes no float16, nowhere


def _computed_in(policy: str, low: Any, first: Any, others: Any) -> Any:
    """Return the dtype of an operator according to autocast's documentation."""
    if policy == "lower":
        return low
    if policy == "promote":
        return torch.float32 if torch.float32 in (first, others) else low
    return torch.float32


@pytest.mark.slow
@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("name", sorted(set(POLICIES) - {NO_KERNEL}))
def test_values_equal_those_of_manually_cast_operands(name: str, low: Any) -> None:
    for first, others in _operands(low):
        if name == "linalg_matrix_norm" and first == low:
            continue
        ours = _with_autocast("sdaa", low, lambda: _called(name, Make("sdaa", first, others)))  # noqa: B023
        dtype = _computed_in(POLICIES[name], low, first, others)
        by_hand = _called(name, Make("sdaa", dtype, dtype))

        assert all(torch.equal(a, b) for a, b in zip(ours, by_hand, strict=True))


def test_attention_of_cuda_is_an_error() -> None:
    with pytest.raises(NotImplementedError, match="Could not run 'aten::_scaled_dot_product_flash_attention'"):
        _with_autocast("sdaa", torch.float16, lambda: _called(NO_KERNEL, Make("sdaa", torch.float32, torch.float32)))


@pytest.mark.parametrize("low", LOW, ids=str)
def test_float64_and_integers_are_unchanged(low: Any) -> None:
    double, whole = (
        torch.ones(4, 4, dtype=torch.float64, device="sdaa"),
        torch.ones(4, dtype=torch.int64, device="sdaa"),
    )
    with torch.autocast("sdaa", dtype=low):
        found = [
            (double @ double).dtype,
            double.softmax(0).dtype,
            double.norm().dtype,
            whole.sum().dtype,
            whole.cumsum(0).dtype,
        ]

    assert found == [torch.float64] * 3 + [torch.int64] * 2


def test_a_requested_dtype_is_used() -> None:
    x = torch.ones(4, 4, device="sdaa", dtype=torch.float16)
    with torch.autocast("sdaa"):
        found = [x.sum(dtype=torch.float16).dtype, torch.softmax(x, 0, dtype=torch.float16).dtype, x.sum().dtype]

    assert found == [torch.float16, torch.float16, torch.float32]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_binary_cross_entropy_is_an_error_in_one_line(dtype: Any) -> None:
    x = torch.full((4,), 0.5, device="sdaa", dtype=dtype)
    with torch.autocast("sdaa"), pytest.raises(RuntimeError, match="not safe under autocast") as caught:
        torch.nn.functional.binary_cross_entropy(x, x)
    with torch.autocast("sdaa"), torch.autocast("sdaa", enabled=False):
        loss = torch.nn.functional.binary_cross_entropy(x.float(), x.float())

    assert "\n" not in str(caught.value).partition("\nException")[0]
    assert "binary_cross_entropy_with_logits" in str(caught.value)
    assert loss.dtype == torch.float32
