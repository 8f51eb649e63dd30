"""Trainings with one bottleneck each: kind, line, operators and fix are reported; none for healthy ones."""

from __future__ import annotations

import inspect
import re
import warnings

import planted_trainings
import pytest
import torch

import torch_sdaa  # noqa: F401 -- makes the device
from toolkit.training.profile import fixes
from toolkit.training.profile.bottlenecks import Bottleneck, bottlenecks
from toolkit.training.profile.record import Profile, checked
from torch_sdaa.profiling.collect import Collector
from torch_sdaa.profiling.record import record

KINDS = {"slow": fixes.SLOW, "copies": fixes.COPIES, "gaps": fixes.GAPS, "recompilation": fixes.RECOMPILATION}
FIXES = {
    "slow_distances_by_broadcasting": (fixes.MEMORY, "aten::sub"),
    "slow_arithmetic_in_float64": (fixes.FLOAT64, "aten::mm"),
    "slow_matrix_product_of_all_with_all": (fixes.COMPUTE, "aten::mm"),
    "slow_network_in_float64": (fixes.FLOAT64, "aten::addmm"),
    "slow_gradient_of_a_large_table": (fixes.TABLE, "aten::embedding_dense_backward"),
    "slow_parts_that_are_taken_one_by_one": (fixes.PARTS, "aten::zero_"),
    "slow_layer": (fixes.PRODUCT, "aten::addmm"),
    "slow_attention_in_steps": (fixes.ATTENTION, "aten::bmm"),
    "slow_formula_of_an_activation": (fixes.CHAIN, "aten::sigmoid"),
    "slow_update_of_a_large_table": (f"{fixes.at_once('Adam')}; or {fixes.UPDATE}", "aten::_foreach_addcdiv_"),
    "copies_by_item_in_a_loop": (fixes.READS, "aten::_local_scalar_dense"),
    "copies_of_features_to_the_host": (fixes.READS, "copy_out"),
    "copies_of_samples_one_by_one": (fixes.UPLOADS, "copy_in"),
    "copies_by_asking_for_a_branch": (fixes.READS, "aten::_local_scalar_dense"),
    "copies_by_synchronising": (fixes.WAITS, "synchronize"),
    "copies_by_printing_what_is_on_the_device": (fixes.READS, "aten::_local_scalar_dense"),
    "copies_by_an_optimizer_that_decides": (fixes.OWN_READS, "aten::_local_scalar_dense"),
    "copies_by_selecting_with_masks": (fixes.DECIDES, "aten::index"),
    "copies_to_other_layouts": (fixes.CONTIGUOUS, "aten::copy_"),
    "gaps_by_a_loop_over_rows": (fixes.LOOPS, "aten::mul"),
    "gaps_by_a_loop_in_a_closure": (fixes.LOOPS, "aten::mul"),
    "gaps_by_a_loop_over_time": (fixes.LOOPS, "aten::mm"),
    "gaps_by_a_cell_of_several_modules": (fixes.LOOPS, "aten::tanh"),
    "gaps_in_a_module": (fixes.LOOPS, "aten::where"),
    "gaps_by_an_optimizer_that_steps_each_tensor": (fixes.at_once("AdamW"), "aten::addcdiv_"),
    "gaps_by_an_optimizer_without_a_fused_form": (fixes.at_once("RMSprop"), "aten::addcdiv_"),
    "gaps_in_a_backward_of_its_own": (fixes.LOOPS, "aten::mul"),
    "gaps_by_hooks_of_gradients": (fixes.LOOPS, "aten::div"),
    "gaps_by_heads_one_by_one": (fixes.SIBLINGS, "aten::addmm"),
    "gaps_with_two_optimizers": (fixes.LOOPS, "aten::sum"),
    "recompilation_by_sequences_of_any_length": (fixes.SHAPES, "aten::addmm"),
    "recompilation_by_rows_that_are_selected": (fixes.SHAPES, "aten::addmm"),
    "recompilation_by_padding_to_the_longest": (fixes.SHAPES, "aten::mean"),
}
PLANTED = [name for name in planted_trainings.TRAININGS if not name.startswith("healthy")]


def profiled(name: str) -> Profile:
    collector = Collector()
    collector.start()
    try:
        planted_trainings.TRAININGS[name]()
    finally:
        found = collector.stop()
    return checked(record(found), name)


def planted_line(name: str) -> int:
    """Return the line marked in a training, or in the module class in front of it."""
    lines = inspect.getsource(planted_trainings).splitlines()
    _, begin = inspect.getsourcelines(planted_trainings.TRAININGS[name])
    own = [n for n in range(begin, len(lines) + 1) if lines[n - 1].endswith("# planted")]
    following = next((n for n in range(begin, len(lines)) if lines[n].startswith(("def ", "class "))), len(lines))
    if own and own[0] <= following:
        return own[0]
    return max(n for n in range(1, begin) if lines[n - 1].endswith("# planted"))


@pytest.mark.parametrize("name", [name for name in planted_trainings.TRAININGS if name.startswith("healthy")])
def test_a_healthy_training_has_no_bottleneck(name: str) -> None:
    assert bottlenecks(profiled(name)) == []


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", PLANTED)
def test_only_the_injected_bottleneck_is_reported(name: str) -> None:
    found = bottlenecks(profiled(name))
    assert [one.kind for one in found] == [KINDS[name.partition("_")[0]]]
    (one,) = found
    fix, op = FIXES[name]
    assert one.fix == fix
    assert op in one.ops
    file, _, line = one.source.rpartition(":")
    assert (file, int(line)) == (planted_trainings.__file__, planted_line(name))


def test_every_kind_is_injected_at_least_three_times() -> None:
    assert set(FIXES) == set(PLANTED)
    assert all(sum(name.startswith(f"{kind}_") for name in PLANTED) >= 3 for kind in KINDS)


def test_the_module_is_reported_and_a_backward_has_the_line_of_its_forward() -> None:
    (one,) = bottlenecks(profiled("slow_layer"))
    assert one.modules == ("wide (Linear)",)
    assert {"aten::addmm", "aten::mm"} <= set(one.ops)
    assert one.per_step >= 3


@pytest.mark.slow
@pytest.mark.long
def test_recompiled_functions_are_reported() -> None:
    def scaled(x: torch.Tensor, by: int) -> torch.Tensor:
        return x * by

    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend="eager", dynamic=False)
    x = torch.ones(4, 4, device="sdaa")
    collector = Collector()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collector.start()
        try:
            for step in range(4):
                compiled(x[:, : step + 1].contiguous(), 2)
        finally:
            found = collector.stop()
    again = [one for one in bottlenecks(checked(record(found), "compiled")) if one.fix == fixes.GUARDS]
    assert [one.kind for one in again] == [fixes.RECOMPILATION]
    assert again[0].ops == ("scaled",)
    assert re.search(r"compiled scaled again 3 times: .*size", again[0].text)
    assert again[0].source == f"{__file__}:{inspect.getsourcelines(scaled)[1]}"


def test_a_run_without_an_optimizer_is_one_step() -> None:
    collector = Collector()
    collector.start()
    x = torch.ones(16, 16, device="sdaa")
    for row in x:
        row.sum().item()
    profile = checked(record(collector.stop()), "no optimizer")
    assert profile.steps == 0
    found: list[Bottleneck] = bottlenecks(profile)
    assert [one.kind for one in found] == [fixes.COPIES]
    assert found[0].per_step == 16
