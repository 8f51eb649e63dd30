"""torch.profiler: device columns with simulated times, device memory, a chrome trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.loading.core import C


def test_the_table_has_the_simulated_time_of_every_operator(tmp_path: Path) -> None:
    x = torch.randn(72, 72, device="sdaa", requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1], profile_memory=True) as seen:
        (x @ x).relu().sum().backward()
        torch.randn(8).sin()
    rows = {row.key: row for row in seen.key_averages()}
    (price,) = [
        seconds
        for (op, inputs, *_), _, seconds, _ in C.signatures()
        if op == "aten::mm" and inputs == [("Float", 4, (72, 72))]
    ]
    assert rows["aten::relu"].device_time_total > 0
    assert rows["aten::mm"].count == 3
    assert rows["aten::mm"].device_time_total == pytest.approx(
        sum(row.self_device_time_total for key, row in rows.items() if key == "aten::mm (simulated)")
    )
    assert rows["aten::mm"].device_time_total >= price * 1e6
    assert rows["aten::sin"].device_time_total == 0  # on the host
    assert rows["aten::mm"].device_memory_usage > 0
    assert "Self SDAA" in seen.key_averages().table()
    path = tmp_path / "trace.json"
    seen.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    kernels = [event for event in events if event.get("cat") == "kernel"]
    assert len(kernels) == sum(row.count for key, row in rows.items() if key.endswith(" (simulated)"))
    assert all(event["args"]["time"] == "simulated" for event in kernels)
    assert any(event.get("args", {}).get("name") == "sdaa:0 (simulated time)" for event in events)


def test_device_times_without_kineto() -> None:
    x = torch.randn(72, 72, device="sdaa")
    with torch.autograd.profiler.profile(use_device="sdaa", use_kineto=False) as seen:
        torch.mm(x, x)
    assert [row.device_time_total > 30 for row in seen.key_averages() if row.key == "aten::mm"] == [True]


def test_earlier_launches_are_not_in_the_profile() -> None:
    x = torch.randn(8, 8, device="sdaa")
    x.exp()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as seen:
        x.sin()
    names = {row.key for row in seen.key_averages()}
    assert "aten::sin (simulated)" in names
    assert "aten::exp (simulated)" not in names
