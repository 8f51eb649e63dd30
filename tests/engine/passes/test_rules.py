"""Rewrite rules: each matches its pattern, keeps the values, and does not match similar graphs.

Values are compared as for every pass (``apply_passes``): with random normal input, no output deviates by more than 1e-4
of its largest value.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from pass_models import build, floats, node, ops
from rule_models import CASES, conv, longs, scalar

from engine.base import PASS_PATH, PassError
from engine.passes.options import PassOptions
from engine.passes.rules import RULES, rewrite, rewrite_counted
from engine.passes.rules.gain import choose, compute_cost, predict
from engine.passes.runner import apply_passes
from engine.sdaa.card import load_card


def test_every_rule_is_tested_and_described() -> None:
    assert CASES.keys() == RULES.keys()
    assert all(rule.matches and rule.becomes for rule in RULES.values())


@pytest.mark.parametrize("name", RULES)
def test_rules_match_and_keep_the_values(name: str) -> None:
    @settings(max_examples=12, deadline=None, database=None)
    @given(st.data())
    def one(data: st.DataObject) -> None:
        model, written = CASES[name](data.draw)
        before = rewrite(model, [])
        counts: list[int] = []

        def use_passes(given_model: onnx.ModelProto) -> onnx.ModelProto:
            changed, fired = rewrite_counted(given_model, [name])
            counts.append(fired[name])
            return changed

        after = apply_passes(model, PassOptions(use_passes=use_passes))
        assert counts[0] >= 1
        assert not written or ops(after)[written] >= 1
        assert len(after.graph.node) <= len(before.graph.node)

    one()


def test_an_unknown_rule_is_reported() -> None:
    with pytest.raises(PassError, match=r"'gelus'; use: conv_batch_norm, .*reshape_chain"):
        rewrite(build([node("Relu", ["x"], "y")], {}, [1, 2]), ["gelus"])


# ------------------------------------------------------------------------------------------------------------- gain


def block() -> onnx.ModelProto:
    """Return a ShuffleNet block: shuffle, split, a convolution of one half, and the two joined again."""
    weights = {"into": longs(2, 2, 4, 6, 6), "back": longs(2, 8, 6, 6), "parts": longs(4, 4)} | conv(4, 4, 1)
    nodes = [
        node("Reshape", ["x", "into"], "a"),
        node("Transpose", ["a"], "b", perm=[0, 2, 1, 3, 4]),
        node("Reshape", ["b", "back"], "c"),
        node("Split", ["c", "parts"], ["p", "q"], axis=1),
        node("Conv", ["q", "w", "b0"], "r"),
        node("Concat", ["p", "r"], "y", axis=1),
    ]
    weights["b0"] = weights.pop("b")
    return build(nodes, weights, [2, 8, 6, 6])


def test_a_shuffle_only_pays_with_subsequent_rules() -> None:
    (alone,) = predict(block())
    assert (alone.rule, alone.fired, alone.kernels_before, alone.kernels_after) == ("channel_shuffle", 1, 4, 4)
    assert alone.seconds < 1e-8
    chosen = choose(block())
    assert [gain.rule for gain in chosen] == ["channel_shuffle", "shuffle_split", "gather_conv"]
    assert chosen[-1].kernels_after == 3
    total = chosen[0].before - chosen[-1].after
    assert total == pytest.approx(sum(gain.seconds for gain in chosen))
    assert total > 30e-6  # one kernel launch


def test_rules_without_gain_are_not_chosen() -> None:
    model = build([node("Reshape", ["x", "s"], "a"), node("Flatten", ["a"], "y")], {"s": longs(2, 3, 2)}, [2, 6])
    assert [gain.rule for gain in predict(model)] == ["reshape_chain"]
    assert choose(model) == []


def test_cost_of_attention() -> None:
    weights = {"wk": floats(64, 64)}
    nodes = [
        node("MatMul", ["x", "wk"], "k"),
        node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]),
        node("MatMul", ["x", "kt"], "l"),
        node("Softmax", ["l"], "p", axis=-1),
        node("MatMul", ["p", "x"], "y"),
    ]
    model = build(nodes, weights, [1, 2, 32, 64], opset=23)
    (gain,) = choose(model)
    assert (gain.rule, gain.kernels_before, gain.kernels_after) == ("attention", 5, 2)
    card = load_card()
    (fused,) = [k for k in compute_cost(rewrite(model, ["attention"])).kernels if k.op_type == "Attention"]
    assert fused.flops == 2 * 2 * 2 * 32 * 32 * 64  # two products of 2 heads, 32 x 32 x 64
    assert gain.seconds > 3 * card.layout("plain").launch_us * 1e-6


# ------------------------------------------------------------------------------------------------------------ opset


@pytest.mark.parametrize(("have", "raised"), [(13, 20), (17, 24), (18, 23), (21, 24)])
def test_raising_the_opset(have: int, raised: int) -> None:
    weights = {"k": scalar(np.sqrt(2)), "one": scalar(1), "half": scalar(0.5), "w": floats(4, 4)}
    nodes = [node("MatMul", ["x", "w"], "m"), node("Div", ["m", "k"], "s"), node("Erf", ["s"], "e")]
    nodes += [node("Add", ["e", "one"], "i"), node("Mul", ["m", "i"], "p"), node("Mul", ["p", "half"], "y")]
    model = build(nodes, weights, ["batch", 4], opset=have)
    assert rewrite_counted(model, ["gelu"])[1] == {"gelu": int(have >= 20)}
    after = apply_passes(model, PassOptions(use_passes=lambda given: rewrite(given, ["gelu"], opset=raised)))
    assert ops(after) == {"MatMul": 1, "Gelu": 1}
    assert [entry.version for entry in after.opset_import] == [raised]
    assert [entry.value for entry in after.metadata_props] == ["zero,one"]
    assert [d.dim_param for d in after.graph.input[0].type.tensor_type.shape.dim] == ["batch", ""]


def test_an_older_opset_is_ignored() -> None:
    model = build([node("Relu", ["x"], "y")], {}, [1, 2], opset=18)
    assert rewrite(model, [], opset=7).opset_import[0].version == 18


def test_an_unknown_opset_is_reported() -> None:
    model = build([node("Relu", ["x"], "y")], {}, [1, 2], opset=18)
    with pytest.raises(PassError, match=r"opset 18.*opset_version=99"):
        rewrite(model, [], opset=99)


def test_the_shufflenet_pass_applies_its_rules() -> None:
    options = PassOptions.load(PASS_PATH / "shufflenet" / "shufflenet_pass.py")
    assert ops(apply_passes(block(), options)) == {"Gather": 1, "Conv": 1, "Concat": 1}
