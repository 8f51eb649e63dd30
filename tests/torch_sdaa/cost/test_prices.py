"""Costs of launches: the card's roofline, rates of dtypes, assumed rates, operators without a launch."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings, strategies as st

import torch_sdaa  # noqa: F401 -- makes the device
from engine.sdaa import Kernel, ShardWork, load_card
from torch_sdaa.cost import counts, prices
from torch_sdaa.loading.core import C
from torch_sdaa.reports import summaries

CARD = load_card()
PLAIN = CARD.layout("plain")


def _float(*sizes: int, dtype: str = "Float", size: int = 4) -> prices.Meta:
    return dtype, size, sizes


def test_a_big_product_costs_its_arithmetic_at_the_rate_of_its_dtype() -> None:
    pricer, n = prices.Pricer(CARD), 4096
    arithmetic = 2 * n**3 / (PLAIN.compute_tflop_s * 1e12)
    half = [_float(n, n, dtype="Half", size=2)]
    price = pricer.price("aten::mm", half * 2, half)
    assert price == (pytest.approx(PLAIN.launch_us * 1e-6 + arithmetic), 0.0, True)
    single = pricer.price("aten::mm", [_float(n, n)] * 2, [_float(n, n)])
    assert single.seconds == pytest.approx(PLAIN.launch_us * 1e-6 + arithmetic / CARD.float32_rate)
    assert single.assumed == pytest.approx(
        arithmetic / CARD.float32_rate
    )  # float32_rate is a guess, the rest is fitted
    assert pricer.assumed == {"float32_rate": "0.5 of float16's"}


def test_a_large_sum_costs_its_bytes_without_assumptions() -> None:
    n = 1 << 24
    price = prices.Pricer(CARD).price("aten::add", [_float(n)] * 2, [_float(n)])
    assert price == (pytest.approx(PLAIN.launch_us * 1e-6 + 3 * 4 * n / (PLAIN.memory_gb_s * 1e9)), 0.0, True)


def test_marks_of_the_card_determine_assumed_figures() -> None:
    guessed = dataclasses.replace(CARD, marks=dict.fromkeys(CARD.marks, "assumed"))
    price = prices.Pricer(guessed).price("aten::add", [_float(10)] * 2, [_float(10)])
    assert price.assumed == pytest.approx(price.seconds)


def test_copies() -> None:
    pricer, n = prices.Pricer(CARD), 1 << 20
    both = [_float(n)], [_float(n)]
    moving = 4 * n / (CARD.host_to_device_gb_s * 1e9)
    assert pricer.price("copy_in", *both) == (pytest.approx(CARD.copy_launch_us * 1e-6 + moving), 0.0, True)
    assert pricer.price("copy_out", *both).assumed == pytest.approx(4 * n / (CARD.device_to_host_gb_s * 1e9))
    assert pricer.price("copy_between", *both).assumed > 0
    assert pricer.price("aten::_local_scalar_dense", [_float()], []).seconds == pytest.approx(
        CARD.copy_launch_us * 1e-6, rel=1e-4
    )


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "flops"),
    [
        ("aten::mm", [(2, 3), (3, 5)], [(2, 5)], 60),
        ("aten::mm", [(4, 4)], [(4, 4)], 128),  # x @ x
        ("aten::addmm", [(5,), (2, 3), (3, 5)], [(2, 5)], 60),
        ("aten::bmm", [(7, 2, 3), (7, 3, 5)], [(7, 2, 5)], 420),
        ("aten::baddbmm_", [(7, 2, 5), (7, 2, 3), (7, 3, 5)], [(7, 2, 5)], 420),
        ("aten::addbmm", [(2, 5), (7, 2, 3), (7, 3, 5)], [(2, 5)], 420),
        ("aten::mv", [(2, 3), (3,)], [(2,)], 12),
        ("aten::add_", [(10,), (10,)], [(10,)], 10),
        ("aten::sum", [(10, 10)], [()], 100),
        ("aten::exp", [(10,)], [(10,)], 40),
        ("aten::_softmax", [(10,)], [(10,)], 80),
        ("aten::_softmax_backward_data", [(10,), (10,)], [(10,)], 160),
        ("aten::native_layer_norm_backward", [(10,)], [(10,)], 140),
        ("aten::sort", [(3, 8)], [(3, 8), (3, 8)], 144),
        ("aten::_foreach_mul_", [(10,), (20,)], [], 30),
        ("aten::_fused_adamw_", [(10,)] * 4, [], 130),
    ],
)
def test_operations(op: str, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]], flops: float) -> None:
    assert counts.operations(op, inputs, outputs) == pytest.approx(flops)


KNOWN = {f"aten::{name}" for name in (*counts._PRODUCTS, *counts._SPECIAL, *counts._OWN, *counts._LIKE)}
KNOWN |= {"aten::addmm_", "aten::topk", "aten::_fft_r2c", "aten::_foreach_add_", "aten::linalg_qr", *prices.COPIES}
WORDS = st.from_regex(r"[_a-z]{1,12}", fullmatch=True)
NAMES = st.one_of(
    st.sampled_from(sorted(KNOWN)),
    st.builds("{}::{}".format, st.sampled_from(["aten", "prims", "mine"]), WORDS),
    st.text(max_size=12),
)
METAS = st.lists(
    st.tuples(
        st.sampled_from(["Half", "Float", "Double", "ComplexFloat", "Long", "Bool", "QInt8", "Undefined"]),
        st.sampled_from([1, 2, 4, 8, 16]),
        st.lists(st.one_of(st.integers(0, 8), st.integers(0, 1 << 40)), max_size=5).map(tuple),
    ),
    max_size=5,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(op=NAMES, inputs=METAS, outputs=METAS)
@example("aten::addmm", [_float(5), _float(12), _float(6, 3)], [_float(6)])  # a nested tensor's flat values
def test_every_launch_has_a_price(op: str, inputs: list[prices.Meta], outputs: list[prices.Meta]) -> None:
    price = prices.Pricer(CARD).price(op, inputs, outputs)
    assert 0 <= price.assumed <= price.seconds < math.inf


def test_shapes_without_a_formula_are_approximated() -> None:
    pricer = prices.Pricer(CARD)
    flat = pricer.price("aten::addmm", [_float(5), _float(12), _float(6, 3)], [_float(6)])
    assert pricer.rough == {"aten::addmm (of some shapes)"}
    assert flat == prices.Pricer(CARD).price("aten::add", [_float(5), _float(12), _float(6, 3)], [_float(6)])


def test_every_formula_of_pytorch_for_a_plain_product_is_used() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    a, b = torch.ones(6, 3, 4), torch.ones(6, 4, 5)
    with FlopCounterMode(display=False) as counter:
        torch.bmm(a, b)
    assert counts.operations("aten::bmm", [a.shape, b.shape], [(6, 3, 5)]) == counter.get_total_flops()


def test_views_launch_nothing_and_in_place_lists_are_written() -> None:
    assert all(map(prices.is_view, ("aten::t", "aten::transpose", "aten::expand", "aten::split", "aten::detach")))
    assert not any(
        map(prices.is_view, ("aten::add", "aten::add_", "aten::mm", "aten::_foreach_add_", "aten::_softmax"))
    )
    n = 1 << 22
    pricer = prices.Pricer(CARD)
    price = pricer.price("aten::_foreach_add_", [_float(n)] * 2, [])
    assert price.seconds == pytest.approx(PLAIN.launch_us * 1e-6 + 3 * 4 * n / (PLAIN.memory_gb_s * 1e9))


def test_embedding_reads_at_most_the_bytes_it_writes() -> None:
    table, rows = _float(1 << 20, 64), ("Long", 8, (16,))
    price = prices.Pricer(CARD).price("aten::embedding", [table, rows], [_float(16, 64)])
    assert price.seconds < 2 * PLAIN.launch_us * 1e-6


def test_a_convolution_and_its_backward_are_priced_with_their_operations() -> None:
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).to("sdaa")
    x = torch.randn(2, 16, 23, 23, device="sdaa", requires_grad=True)
    conv(x).sum().backward()
    found: dict[str, float] = {}
    for (op, inputs, _, flops), *_ in C.signatures():
        if "convolution" in op and (2, 16, 23, 23) in [sizes for *_, sizes in inputs]:
            found[op] = flops
    forward = 2.0 * 2 * 32 * 23 * 23 * 16 * 9
    assert found == {"aten::convolution": forward, "aten::convolution_backward": 2 * forward}


def test_the_summary_has_the_assumed_share() -> None:
    x: Any = torch.randn(2048, 2048, device="sdaa")
    (x @ x).cpu()
    text = torch.sdaa.time_summary(top=1000)  # type: ignore[attr-defined] # other tests have launched much
    assert text.startswith("simulated time on TECO_AICARD_01 (t1.yaml); nothing was measured")
    assert "float32_rate (0.5 of float16's)" in text
    assert "device_to_host_gb_s (6.65)" in text
    assert "aten::mm" in text
    times = summaries.device_times(0)
    assert 0 < times.assumed_share < 1
    assert f"{times.assumed_share:.1%}" in text


def test_parts_of_a_compiled_graph_are_those_of_its_kernels() -> None:
    kernels = (
        Kernel("product", "MatMul", (), (), (), 2e9, 4_000_000, 1_000_000),
        Kernel("sum", "Add", (), (), (), 1e6, 8_000_000, 4_000_000),
    )
    card = load_card()
    pricer = prices.Pricer(card)
    name = f"{prices.GRAPHS}::a_test"
    prices.add_graph(name, ShardWork(False, 1, 1, 8, 8, 0, 0, kernels))
    try:
        parts, price = pricer.parts(name, [], []), pricer.price(name, [], [])
    finally:
        del prices._graphs[name]
    assert parts.flops == 2e9 + 1e6
    assert parts.bytes == 17_000_000
    assert parts.launch == pytest.approx(2 * card.layout(prices.LAYOUT).launch_us * 1e-6)
    assert parts.launch < price.seconds <= parts.launch + parts.arithmetic + parts.memory
