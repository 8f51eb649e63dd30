"""Chrome traces for Perfetto and chrome://tracing: named lanes, and nested spans."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import profile_models as models
import pytest

from engine import EngineSpec
from toolkit.cli import execute
from toolkit.profile.card import profile_card
from toolkit.profile.record import Profile
from toolkit.profile.trace import chrome_trace

Event = dict[str, Any]
LANES = ["framework", "runtime", "device"]


@pytest.fixture(params=["sdaa", "onnx"])
def events(request: pytest.FixtureRequest, tmp_path: Path) -> list[Event]:
    """Events of a trace written by the command."""
    path, out = models.conversions(tmp_path / "m.onnx"), tmp_path / "trace.json"
    words = ["profile", str(path), "--target", request.param, "--runs", "3", "--trace", str(out)]
    assert execute(words) == 0
    data = json.loads(out.read_text())
    assert data.keys() == {"displayTimeUnit", "traceEvents"}
    assert data["displayTimeUnit"] in ("ms", "ns")
    return list(data["traceEvents"])


def spans(events: list[Event], lane: str) -> list[Event]:
    (pid,) = (event["pid"] for event in events if event["name"] == "thread_name" and event["args"] == {"name": lane})
    return [event for event in events if event["ph"] == "X" and event["pid"] == pid]


def test_events_have_required_fields(events: list[Event]) -> None:
    for event in events:
        assert event["ph"] in ("X", "M")
        assert isinstance(event["name"], str)
        assert event["name"]
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        times = (event["ts"], event["dur"]) if event["ph"] == "X" else (event["ts"],)
        assert all(math.isfinite(value) and value >= 0 for value in times)


def test_the_three_lanes_are_named_and_in_order(events: list[Event]) -> None:
    kind = {name: [e["args"] for e in events if e["name"] == name] for name in ("process_name", "process_sort_index")}
    assert [one["name"].split()[0] for one in kind["process_name"]] == LANES
    assert [one["sort_index"] for one in kind["process_sort_index"]] == [1, 2, 3]
    assert all(spans(events, lane) for lane in LANES)


def test_spans_nest(events: list[Event]) -> None:
    """In a lane a span follows the previous one, or lies within it."""
    for lane in LANES:
        open_until: list[int] = []
        for event in sorted(spans(events, lane), key=lambda e: (e["ts"], -e["dur"])):
            start, end = round(event["ts"] * 1e3), round(event["ts"] * 1e3) + round(event["dur"] * 1e3)
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1], (lane, event["name"])
            open_until.append(end)


def test_work_does_not_overlap(events: list[Event]) -> None:
    call = spans(events, "framework")[0]
    for lane in ("runtime", "device"):
        for a, b in pairwise(spans(events, lane)):
            assert round(a["ts"] * 1e3) + round(a["dur"] * 1e3) <= round(b["ts"] * 1e3)
        last = spans(events, lane)[-1]
        assert last["ts"] + last["dur"] <= call["ts"] + call["dur"] + 1e-3


def test_times_are_microseconds(tmp_path: Path) -> None:
    found = profile_card(EngineSpec(models.conversions(tmp_path / "m.onnx")))
    events = chrome_trace(found)["traceEvents"]
    call, device, runtime = (spans(events, lane) for lane in LANES[:1] + LANES[:0:-1])
    assert call[0]["dur"] == pytest.approx(found.call * 1e6, abs=2e-3)
    assert sum(span["dur"] for span in device) == pytest.approx(sum(s.roof for s in found.steps) * 1e6, abs=0.02)
    assert [span["name"] for span in runtime][:: len(runtime) - 1] == ["copy in", "copy out"]
    assert runtime[-1]["dur"] == pytest.approx(found.copy_out * 1e6, abs=2e-3)
    assert call[0]["dur"] == pytest.approx((found.copy_in + found.compute + found.copy_out) * 1e6, abs=2e-3)
    assert [span["name"] for span in device] == [step.name for step in found.steps]
    assert device[0]["args"].keys() >= {"operator", "nodes", "flops", "bytes", "share of the roof", "bound"}


def test_modules_lie_within_the_call(tmp_path: Path) -> None:
    found: Profile = profile_card(EngineSpec(models.torch_named(tmp_path / "m.onnx")))
    framework = spans(chrome_trace(found)["traceEvents"], "framework")
    assert [span["name"] for span in framework[1:]] == ["block.first", "block.second"]
    launches = [s for s in spans(chrome_trace(found)["traceEvents"], "runtime") if s["name"].startswith("launch ")]
    assert framework[1]["ts"] == launches[0]["ts"] == pytest.approx(found.copy_in * 1e6, abs=1e-3)
    assert sum(s["dur"] for s in framework[1:]) == pytest.approx(found.compute * 1e6, abs=0.01)
    assert sum(s["dur"] for s in launches) == pytest.approx(
        sum(s.seconds - s.roof for s in found.steps) * 1e6, abs=0.01
    )
    whole = framework[0]
    assert all(whole["ts"] <= s["ts"] and s["ts"] + s["dur"] <= whole["ts"] + whole["dur"] for s in framework[1:])
