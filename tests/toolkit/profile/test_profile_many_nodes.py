"""The number of iterations over the steps of a profile is constant: 20 000 nodes took minutes otherwise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from toolkit.cli import execute
from toolkit.profile.comparison import compare
from toolkit.profile.host import _by_run
from toolkit.profile.record import Launch, Profile, read_profile
from toolkit.profile.report import findings, slowest, table, whole
from toolkit.profile.roofline import profile_page
from toolkit.profile.trace import chrome_trace


class Counted(tuple[Any, ...]):
    """Steps that count the iterations over them."""

    times = 0

    def __iter__(self) -> Iterator[Any]:
        type(self).times += 1
        return super().__iter__()


def profile_of(count: int) -> Profile:
    steps = Counted(
        Launch(f"n{i}", "Relu", (f"n{i}",), "", 1e-6 * (1 + i % 7), 8.0, 32, 1e-7, "memory") for i in range(count)
    )
    return Profile(
        *("m.onnx", "sdaa", True, "card", "float16", 1, "", {"x": (1, 4)}, 1e12, 1e11), *(steps, 0.0, 0.0, 1.0)
    )


def looks(count: int) -> int:
    """Return the number of iterations of all output over this many steps."""
    Counted.times = 0
    found = profile_of(count)
    profile_page(found, None, None)
    for made in (slowest(found), table(found), whole(found), list(findings(found)), chrome_trace(found)):
        assert made
    compare(found, found)
    return Counted.times


def test_iterations_do_not_depend_on_number_of_steps() -> None:
    assert looks(400) == looks(40)


def test_events_belong_to_run_of_start() -> None:
    def event(kind: str, name: str, at: int) -> dict[str, Any]:
        return {"cat": kind, "name": name, "ts": at}

    runs = [event("Session", "model_run", at) for at in (30, 10, 20)]  # written as they end, in any order
    nodes = [event("Node", "n_kernel_time", at) for at in (5, 10, 19, 20, 31)]
    others = [event("Node", "n_fence_before", 12), event("Session", "model_loading_uri", 1)]
    found = [[one["ts"] for one in run] for run in _by_run([*runs, *nodes, *others])]
    assert found == [[10, 19], [20], [31]]


def chain(path: Path, count: int) -> Path:
    nodes = [helper.make_node("Neg", [f"t{i}"], [f"t{i + 1}"], name=f"n{i}") for i in range(count)]
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])] for name in ("t0", f"t{count}")]
    graph = helper.make_graph(nodes, "chain", *sides)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("target", ["sdaa", "onnx"])
def test_a_chain_of_20000_nodes(target: str, tmp_path: Path) -> None:
    model, out = chain(tmp_path / "chain.onnx", 20000), tmp_path / "p.json"
    words = ["profile", str(model), "--target", target, "--runs", "1", "--json", str(out)]
    assert execute([*words, "--html", str(tmp_path / "p.html"), "--trace", str(tmp_path / "p.trace")]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert read_profile(out).compute == pytest.approx(sum(row["seconds"] for row in rows))
