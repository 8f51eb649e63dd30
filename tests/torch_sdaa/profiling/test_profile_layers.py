"""torch.sdaa.profile: layers that add up, a trace, OP_INFO, and errors."""

from __future__ import annotations

import csv
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.loading.core import C
from torch_sdaa.profiling.collect import Collector, Steps
from torch_sdaa.profiling.naming import ModuleNames
from torch_sdaa.profiling.spans import covered

Step = Callable[[], None]


@pytest.fixture
def step() -> Step:
    """A training step, run once before."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10)).to("sdaa")
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)

    def one() -> None:
        x, y = torch.randn(8, 3, 8, 8).to("sdaa"), torch.randint(0, 10, (8,)).to("sdaa")
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    one()
    return one


def lengths(trace: dict[str, Any], rows: set[int]) -> float:
    """Return the seconds covered by at least one span of some rows."""
    spans = [(e["ts"], e["ts"] + e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] in rows]
    return covered(spans) / 1e6


def test_host_layers_add_up_to_wall_time_and_device_layers_to_its_clock(tmp_path: Path, step: Step) -> None:
    begin, end = (torch.sdaa.Event(enable_timing=True) for _ in range(2))
    torch.sdaa.synchronize()
    outer = time.perf_counter()
    begin.record()
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True) as prof:
        inner = time.perf_counter()
        for _ in range(3):
            step()
        inside = time.perf_counter() - inner
        found = prof
    end.record()
    outside = time.perf_counter() - outer
    host = found.record["host"]
    assert inside <= host["wall"] <= outside
    assert host["framework"] + host["runtime"] + host["launch"] == pytest.approx(host["wall"], rel=0.02)
    assert sum(host["framework_parts"].values()) == pytest.approx(host["framework"], rel=0.02)
    assert all(value > 0 for value in (host["framework"], host["runtime"], host["launch"]))
    assert all(value > 0 for value in host["framework_parts"].values())

    (device,) = found.record["devices"]
    torch.sdaa.synchronize()
    assert device["simulated"] == pytest.approx(begin.elapsed_time(end) / 1e3, rel=0.02)
    parts = device["compute"] + device["copies"] + device["idle"] - device["overlap"]
    assert parts == pytest.approx(device["simulated"], rel=0.02)
    assert sum(row["seconds"] for row in found.record["launches"]) == pytest.approx(device["simulated"], rel=0.02)
    assert device["launches"] == sum(row["count"] for row in found.record["op_info"])


def test_the_trace_agrees_with_the_layers(tmp_path: Path, step: Step) -> None:
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True) as prof:
        step()
    trace = json.loads((prof.result / "timeline" / "trace.json").read_text(encoding="utf-8"))
    host, (device,) = prof.record["host"], prof.record["devices"]
    launch, runtime, wall = (lengths(trace, rows) for rows in ({3}, {2, 3}, {1, 2, 3}))
    assert launch == pytest.approx(host["launch"], rel=0.02)
    assert runtime - launch == pytest.approx(host["runtime"], rel=0.02)
    assert wall - runtime == pytest.approx(host["framework"], rel=0.02)
    assert lengths(trace, {10}) == pytest.approx(device["busy"], rel=0.02)
    assert json.loads((prof.result / "profile.json").read_text(encoding="utf-8")) == prof.record


def test_the_trace_is_valid_for_perfetto(tmp_path: Path, step: Step) -> None:
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True) as prof:
        step()
    prof.export_chrome_trace(tmp_path / "again.json")
    trace = json.loads((tmp_path / "again.json").read_text(encoding="utf-8"))
    events = trace["traceEvents"]
    assert set(trace) == {"displayTimeUnit", "traceEvents"}
    for event in events:
        assert {"name", "ph", "pid", "tid", "ts", "args"} <= set(event)
        assert event["ph"] in ("X", "M")
        assert event["ph"] == "M" or (event["dur"] >= 0 and event["ts"] >= 0)
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    layers = {f"{name} (host, measured)" for name in ("framework", "runtime", "launch")}
    assert names == layers | {"sdaa:0 (simulated time)"}
    rows: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():  # spans of a row lie in one another or apart, or Perfetto drops them
        around: list[float] = []
        for first, last in sorted(spans, key=lambda span: (span[0], -span[1])):
            while around and around[-1] <= first + 1e-6:
                around.pop()
            assert not around or last <= around[-1] + 1e-6
            around.append(last)
    launched = {e["args"]["launch"] for e in events if e["pid"] == 3 and e["ph"] == "X"}
    assert launched == {e["args"]["launch"] for e in events if e["pid"] >= 10 and e["ph"] == "X"}


def test_overlapping_copies_are_reported_and_counted_once(tmp_path: Path) -> None:
    x = torch.randn(512, 512, device="sdaa:1")
    host = torch.randn(256, 256).pin_memory()
    side = torch.sdaa.Stream(device=1)
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True) as prof:
        for _ in range(4):
            x @ x
            with torch.sdaa.stream(side):
                host.to("sdaa:1", non_blocking=True)
        C.settle()
    (device,) = prof.record["devices"]
    assert device["device"] == "sdaa:1"
    assert device["overlap"] > 0
    assert device["busy"] + device["idle"] == pytest.approx(device["simulated"], rel=0.02)
    assert device["compute"] + device["copies"] - device["overlap"] == pytest.approx(device["busy"], rel=1e-6)


def test_op_info_has_every_operator_with_its_operands(tmp_path: Path) -> None:
    x = torch.ones(6, 7, device="sdaa")
    with torch.sdaa.profile(tmp_path) as prof:
        for _ in range(3):
            x.t() @ x
        x.half().exp()
    rows = {(row["op"], *row["inputs"]): row for row in prof.record["op_info"]}
    assert rows["aten::mm", "float32[7, 6]", "float32[6, 7]"]["count"] == 3
    assert rows["aten::mm", "float32[7, 6]", "float32[6, 7]"]["flops"] == 3 * 2 * 7 * 6 * 7
    assert rows["aten::exp", "float16[6, 7]"]["outputs"] == ["float16[6, 7]"]
    with (prof.result / "op_info.csv").open(encoding="utf-8", newline="") as file:
        assert [row["op"] for row in csv.DictReader(file)] == [row["op"] for row in prof.record["op_info"]]
    assert prof.record["host"] is None  # not end to end


def test_a_backward_has_the_line_and_module_of_its_forward(tmp_path: Path, step: Step) -> None:
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True) as prof:
        step()
    rows = {(row["op"], row["phase"]): row for row in prof.record["launches"]}
    forward, backward = rows["aten::convolution", "forward"], rows["aten::convolution_backward", "backward"]
    assert forward["module"] == backward["module"] == "0 (Conv2d)"
    assert forward["line"] == backward["line"] > 0
    assert forward["file"] == __file__
    assert backward["node"] == "ConvolutionBackward0"
    assert {row["phase"] for row in prof.record["launches"]} == {"forward", "backward", "update"}


def test_a_configuration_selects_layers(tmp_path: Path, step: Step) -> None:
    config = torch.sdaa.profileConfig(
        ACL_PROF_ACL_API=False, ACL_PROF_TASK_TIME=False, ACL_PROF_TRAINING_TRACE=True, aiCoreMetricsType=2
    )
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True, config=config) as prof:
        step()
    assert set(prof.record["host"]) == {"wall"}
    assert prof.record["devices"] == []
    (one,) = [one for one in prof.record["training_trace"] if one["update"]]
    assert min(one["forward"], one["backward"], one["update"]) > 0
    assert all(row["bytes_per_second"] > 0 for row in prof.record["metrics"] if row["op"] == "aten::relu")
    trace = json.loads((prof.result / "timeline" / "trace.json").read_text(encoding="utf-8"))
    assert {event["pid"] for event in trace["traceEvents"]} == {1}


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"ACL_PROF_ACL_APY": True}, TypeError, "no option 'ACL_PROF_ACL_APY'; did you mean 'ACL_PROF_ACL_API'"),
        ({"ACL_PROF_AICPU": 1}, TypeError, "ACL_PROF_AICPU must be True or False, got 1"),
        ({"ACL_PROF_L2CACHE": True}, ValueError, "ACL_PROF_L2CACHE: the card's description has no cache"),
        ({"aiCoreMetricsType": 3}, ValueError, "no counters of inner buffers; use 0, 1, 2 or 0xFF"),
        ({"aiCoreMetricsType": "0"}, TypeError, "aiCoreMetricsType .*0x0 arithmetic, .* got '0'"),
    ],
)
def test_invalid_options_are_errors(options: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        torch.sdaa.profileConfig(**options)


def test_invalid_arguments_are_errors(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="none is not a folder"):
        torch.sdaa.profile(tmp_path / "none")
    with pytest.raises(TypeError, match=r"config: .*profileConfig, got 3"):
        torch.sdaa.profile(tmp_path, config=3)
    with pytest.raises(TypeError, match=r"'use_e2e_profile'; .*'use_e2e_profiler'"):
        torch.sdaa.profile(tmp_path, use_e2e_profile=True)
    with pytest.raises(TypeError, match=r"use_e2e_profiler .*got 'yes'"):
        torch.sdaa.profile(tmp_path, use_e2e_profiler="yes")
    with pytest.raises(TypeError, match=r"profiler_result_path: .*got None"):
        torch.sdaa.profile(None)
    prof = torch.sdaa.profile(tmp_path)
    with pytest.raises(RuntimeError, match="profile: the trace"):
        prof.export_chrome_trace(tmp_path / "trace.json")
    with prof, pytest.raises(RuntimeError, match="a profile is active"):
        torch.sdaa.profile(tmp_path).__enter__()


def test_an_error_in_the_block_ends_the_profile_and_passes(tmp_path: Path) -> None:
    before = nn.Module.__call__
    x = torch.ones(3, device="sdaa")
    with pytest.raises(RuntimeError, match="must match the size"), torch.sdaa.profile(tmp_path):
        x + torch.ones(4, device="sdaa")
    (kept,) = tmp_path.iterdir()  # what was seen until then is not lost
    assert "must match the size" in json.loads((kept / "profile.json").read_text(encoding="utf-8"))["failed"]
    assert nn.Module.__call__ is before
    with torch.sdaa.profile(tmp_path) as prof:
        torch.ones(3, device="sdaa").exp()
    assert "aten::exp" in {row["op"] for row in prof.record["op_info"]}


def test_modules_of_several_roots_have_unique_names_and_call_counts() -> None:
    names = ModuleNames()
    blocks = [nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)]
    names.start()
    try:
        x = torch.ones(2)
        for block in blocks:
            block(x)
    finally:
        names.stop()
    assert len(set(names.names)) == len(names.names) == 9
    assert {"Sequential", "0 (Linear)", "Sequential #2", "0 (Linear) of Sequential #2"} <= set(names.names)
    (called,) = [one for (file, _), one in names.called.items() if file == __file__]
    assert (called.count, called.beside, len(called.modules), len(called.inside)) == (3, 3, 3, 9)


@pytest.mark.parametrize(
    ("turns", "steps"),
    [
        ("aaaa", 4),  # one optimizer
        ("abab", 2),  # two in turn
        ("aaabaaab", 2),  # one goes more often
        ("aaaabbbb", 8),  # one after the other
        ("ab", 2),
    ],
)
def test_optimizers_that_take_turns_make_rounds(turns: str, steps: int) -> None:
    made = Steps()
    optimizers = {name: torch.optim.SGD([nn.Parameter(torch.ones(1))], 0.1) for name in set(turns)}
    for at, name in enumerate(turns):
        made.add(optimizers[name], at)
    assert len(made) == len(turns)
    assert len(made.rounds()) == steps
    assert made.rounds()[-1] == len(turns) - 1


@pytest.mark.slow
def test_torch_compile_compiles_the_same_functions_under_the_profiler() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(2):
                x = self.first(x)
                if x.mean().item() > 1e6:  # PyTorch breaks the graph here
                    x = x * 2
                x = self.second(x)
            return x

    def compiled() -> list[tuple[str, str]]:
        torch._dynamo.reset()
        known = len(torch._dynamo.utils.get_compilation_metrics())
        run = torch.compile(Broken(), backend="eager")
        for _ in range(2):
            run(torch.ones(2, 4)).sum().backward()
        made = torch._dynamo.utils.get_compilation_metrics()[known:]
        return [(str(one.co_filename), str(one.co_name)) for one in made]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plainly = compiled()
        collector = Collector()
        collector.start()
        try:
            watched = compiled()
        finally:
            collector.stop()
    assert watched == plainly


def test_values_are_the_same_under_the_profiler(tmp_path: Path) -> None:
    def trained() -> list[float]:
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.Linear(7, 1)).to("sdaa")
        optimizer = torch.optim.AdamW(model.parameters())
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 5, device="sdaa")).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    plain = trained()
    with torch.sdaa.profile(tmp_path, use_e2e_profiler=True):
        assert trained() == plain
