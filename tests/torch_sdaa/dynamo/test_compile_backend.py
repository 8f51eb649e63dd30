"""Backend ``sdaa`` of ``torch.compile``: values, partitions, operators left to the device, caches, options, costs."""

from __future__ import annotations

import copy
import hashlib
import logging
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import RunPython

import torch_sdaa
from engine import ConfigError, EngineSpec, open_engine
from engine.sdaa import ShardWork
from torch_sdaa import dynamo
from torch_sdaa.dynamo import cache
from torch_sdaa.loading.core import C

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.usefixtures("compiles_anew")]


class Net(torch.nn.Module):
    """A convolution, batch norm, pooling, layer norm, dropout and a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), torch.nn.BatchNorm2d(8)
        self.pool, self.layer = torch.nn.MaxPool2d(2), torch.nn.LayerNorm(8)
        self.drop, self.last = torch.nn.Dropout(0.3), torch.nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.norm(self.conv(x)).relu()).mean((2, 3))
        return self.last(self.drop(self.layer(x)))


def pair() -> tuple[Any, Any]:
    """Return one network twice, on the device."""
    torch.manual_seed(0)
    model = Net().sdaa()
    return model, copy.deepcopy(model)


def step(function: Any, model: Any, x: Any) -> Any:
    torch.sdaa.manual_seed(3)
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(function(x), torch.arange(x.shape[0], device=x.device) % 5)
    loss.backward()
    return loss.item()


def same(model: Any, other: Any) -> None:
    for (name, mine), theirs in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5, msg=name)
    for mine, theirs in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_training_step_is_one_partition_each_way_and_equal_with_dropout() -> None:
    plain, model = pair()
    x = torch.randn(4, 3, 16, 16).sdaa()
    loss = step(plain, plain, x)
    compiled = torch.compile(model, backend="sdaa", fullgraph=True)
    before = C.times(0)
    assert step(compiled, model, x) == pytest.approx(loss, rel=1e-5)  # the masks are those of the device
    same(model, plain)
    report = dynamo.report()
    assert [(graph.stage, len(graph.partitions), graph.fallbacks) for graph in report.graphs] == [
        ("forward", 1, []),
        ("backward", 1, []),
    ]
    assert (report.graphs[0].draws, report.graphs[0].written_back) == (1, 3)
    plans = [plan for graph in report.graphs for part in graph.partitions for plan in part.plans]
    found = {described[0]: seconds for described, _, seconds, _ in C.signatures()}
    assert all(found[f"sdaa_graph::{plan.launch}"] == pytest.approx(plan.seconds) for plan in plans)
    assert all(4 < plan.kernels < 16 and plan.runs == 1 for plan in plans)
    assert C.times(0)["compute"] - before["compute"] >= sum(plan.seconds for plan in plans)


def test_the_function_of_the_module_is_the_backend_too() -> None:
    compiled = torch.compile(lambda x: (x.sin() + 1).relu(), backend=torch_sdaa.aot_backend)
    x = torch.randn(7, device="sdaa:1")
    made = compiled(x)
    assert made.device == x.device
    torch.testing.assert_close(made, (x.sin() + 1).relu())
    assert "inference: 3 operators, 1 partition, 0 left" in str(dynamo.report())


def test_inference_uses_the_running_statistics() -> None:
    model, _ = pair()
    model.eval()
    x = torch.randn(2, 3, 16, 16).sdaa()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="sdaa")(x), model(x), rtol=1e-4, atol=1e-5)


def test_autocast() -> None:
    plain, model = pair()
    x = torch.randn(4, 3, 16, 16).sdaa()
    with torch.autocast("sdaa", dtype=torch.float16):
        loss = step(plain, plain, x)
        made = step(torch.compile(model, backend="sdaa"), model, x)
    assert made == pytest.approx(loss, rel=1e-2)
    assert [len(graph.partitions) for graph in dynamo.report().graphs] == [1, 1]


def test_another_batch_and_another_size_are_plans_of_one_graph() -> None:
    plain, model = pair()
    compiled = torch.compile(model, backend="sdaa", dynamic=True)
    for batch, side in ((2, 16), (3, 20), (4, 24)):
        x = torch.randn(batch, 3, side, side).sdaa()
        assert step(compiled, model, x) == pytest.approx(step(plain, plain, x), rel=1e-4)
        same(model, plain)
    forward = dynamo.report().graphs[0]
    assert [plan.shapes[0] for plan in forward.partitions[0].plans][1:] == [(3, 3, 20, 20), (4, 3, 24, 24)]
    assert not dynamo.report().recompilations


def test_a_recompilation_has_its_reason() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="sdaa")
    compiled(torch.ones(3, device="sdaa"))
    compiled(torch.ones(4, device="sdaa"))
    (again,) = dynamo.report().recompilations
    assert again.compile_id == "0/1"
    assert "size mismatch at index 0. expected 3, actual 4" in again.reason


def test_operators_without_an_onnx_form_are_left_to_the_device(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.rand(4, 4, device="sdaa") + torch.eye(4, device="sdaa")
    compiled = torch.compile(lambda x: torch.linalg.inv(x.exp()).tanh(), backend="sdaa")
    with caplog.at_level(logging.WARNING, "torch_sdaa.dynamo"):
        torch.testing.assert_close(compiled(x), torch.linalg.inv(x.exp()).tanh(), rtol=1e-4, atol=1e-4)
    (left,) = (each for each in dynamo.report().fallbacks if each.op == "aten.linalg_inv_ex.default")
    assert left.reason == "it has no ONNX form in torch_sdaa.dynamo.aten"
    assert "aten.linalg_inv_ex.default x1 is left to the device: it has no ONNX form" in caplog.text
    assert len(dynamo.report().graphs[0].partitions) == 2


def test_a_draw_left_in_place_is_reported() -> None:
    compiled = torch.compile(lambda x: torch.bernoulli(x.sigmoid()) * 2, backend="sdaa")
    compiled(torch.rand(4, 4, device="sdaa"))
    (left,) = dynamo.report().fallbacks
    assert left.reason == "random numbers are drawn by the device, each draw after the one before it"


CODE = """
import sys, torch, torch_sdaa
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).sdaa()
number = float(sys.argv[1])  # a graph that no run before this test's has compiled
torch.compile(lambda x: model(x * number), backend="sdaa")(torch.ones(3, 4, device="sdaa")).sum().backward()
plans = [plan for graph in torch_sdaa.dynamo.report().graphs for part in graph.partitions for plan in part.plans]
print(*(plan.source for plan in plans))
"""


@pytest.mark.long
def test_another_process_uses_the_cache(run_python: RunPython, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the extension lies in the cache too
    number = str(time.time())
    said = [run_python("-W", "ignore", "-c", CODE, number).stdout.strip() for _ in range(2)]
    assert said[0].split()[0] == "built"  # the backward pass may be the same whatever the number
    assert said[1] == "cache cache"


def test_a_damaged_entry_is_built_again(tmp_path: Path) -> None:
    entry = cache.Entry(b"model", ShardWork(False, 1, 1, 4, 4, 0, 0, ()), 3)
    cache.write("damaged", entry)
    assert cache.read("damaged") == (entry, "")
    (path,) = (tmp_path / "cache" / "compiled_graphs").glob("*.sdaagraph")
    path.write_bytes(path.read_bytes()[:-1])
    assert cache.read("damaged") == (None, "the file was changed after it was written")


def test_other_files_in_place_of_an_entry_are_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "compiled_graphs"
    folder.mkdir(parents=True)
    for place, rest in enumerate((b"[]\nmodel", b"3\nmodel", b'{"made_of": 3}\nmodel', b"\xff\n", b"")):
        path = folder / f"odd{place}.sdaagraph"
        path.write_bytes(hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
        found, why = cache.read(f"odd{place}")
        assert found is None
        assert why
    (folder / "binary.sdaagraph").write_bytes(b"\xa3\x94\n")
    assert cache.read("binary") == (None, "the file was changed after it was written")
    (folder / "folder.sdaagraph").mkdir()
    assert "it is a folder" in cache.read("folder")[1]
    cache.write("folder", cache.Entry(b"model", ShardWork(False, 1, 1, 4, 4, 0, 0, ()), 3))


def test_a_read_only_cache_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = cache.Entry(b"model", ShardWork(False, 1, 1, 4, 4, 0, 0, ()), 3)
    cache.write("kept", entry)

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refused)
        assert cache.read("kept") == (entry, "")
        monkeypatch.setenv("TORCH_SDAA_COMPILE_CACHE_MB", "1")
        patch.setattr(Path, "unlink", refused)
        for place in range(3):  # no room is made, and nothing fails
            cache.write(f"key{place}", cache.Entry(bytes(640_000), entry.work, 3))


def test_an_entry_of_another_version_is_built_again_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def once() -> Any:
        torch.compiler.reset()
        dynamo.clear()
        torch.compile(lambda x: x.exp() + 1, backend="sdaa")(torch.ones(3, device="sdaa"))
        (plan,) = dynamo.report().graphs[0].partitions[0].plans
        return plan

    assert (once().source, once().source) == ("built", "cache")
    made_of = cache.made_of()
    assert {"torch", "onnxruntime", "lowering", "card", "torch_sdaa.dynamo"} <= made_of.keys()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "made_of", lambda: {**made_of, "lowering": "another"})
        again = once()
        text = str(dynamo.report())
    assert (again.source, again.ignored) == ("built", f"made with lowering {made_of['lowering']}, here another")
    assert "; cached entry not used: made with lowering" in text
    assert once().ignored == f"made with lowering another, here {made_of['lowering']}"
    assert once().source == "cache"


def test_the_cache_respects_its_budget(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCH_SDAA_COMPILE_CACHE_MB", "1")
    for place in range(3):
        entry = cache.Entry(bytes([place]) * 640_000, ShardWork(False, 1, 1, 4, 4, 0, 0, ()), place)
        cache.write(f"key{place}", entry)
    kept = sorted(path.stem for path in (tmp_path / "cache" / "compiled_graphs").glob("*.sdaagraph"))
    assert kept == ["key2"]
    assert cache.read("key2") == (entry, "")
    monkeypatch.setenv("TORCH_SDAA_COMPILE_CACHE_MB", "many")
    with pytest.raises(ConfigError, match="TORCH_SDAA_COMPILE_CACHE_MB='many'"):
        cache.read("key2")


@pytest.mark.parametrize(
    ("options", "message"),
    [([("cache", True)], r"dictionary such as"), ({"keep": "a\0b"}, r"'a\\x00b', which is not")],
)
def test_options_of_another_type_are_errors(options: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        torch.compile(lambda v: v + 1, backend="sdaa", options=options)(torch.ones(2, device="sdaa"))


def test_unknown_options_are_errors() -> None:
    for options, message in (
        ({"cahce": True}, "has no option 'cahce'; did you mean 'cache'"),
        ({"cache": "yes"}, "option cache of backend 'sdaa' must be a bool, got 'yes'"),
    ):
        torch.compiler.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(lambda x: x + 1, backend="sdaa", options=options)(torch.ones(1, device="sdaa"))


@pytest.mark.filterwarnings("ignore:.*")
def test_stored_models_run_on_the_engines(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).sdaa()
    options = {"keep": str(tmp_path / "kept"), "const_name": True}
    torch.compile(model, backend="sdaa", options=options)(torch.randn(3, 4).sdaa()).sum().backward()
    models = sorted((tmp_path / "kept").glob("*.onnx"))
    assert [path.name for path in models] == ["backward_0_0_0_0.onnx", "forward_0_0_0_0.onnx"]
    for path in models:
        with np.load(path.with_suffix(".npz"), allow_pickle=False) as stored:
            inputs = [stored[name] for name in stored if name.startswith("input_")]
            outputs = [stored[name] for name in stored if name.startswith("output_")]
        spec = EngineSpec(ckpt=path, dtype="float32", divided=False)
        for target in ("onnx", "sdaa"):
            with open_engine(target, spec) as engine:
                made = engine(inputs)
            made = made if isinstance(made, list) else [made]
            for found, wanted in zip(made, outputs, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_many_batch_norms_are_independent() -> None:
    """ONNX Runtime overwrites the given statistics of a batch norm: each has its own copy."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (torch.nn.Conv2d(8, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())]
    plain = torch.nn.Sequential(*layers).sdaa()
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="sdaa")
    x = torch.randn(2, 8, 16, 16).sdaa()
    for _ in range(2):
        for function, own in ((plain, plain), (compiled, model)):
            own.zero_grad()
            function(x).square().mean().backward()
        same(model, plain)


def test_threads_and_moved_tensors_have_separate_values() -> None:
    """Bindings of a call are kept for the next: neither another thread nor reused memory may mix up values."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).sdaa()
    compiled = torch.compile(model, backend="sdaa")
    with torch.no_grad():
        compiled(torch.zeros(16, 64).sdaa())

        def alone(seed: int) -> float:
            made = torch.Generator().manual_seed(seed)
            worst = 0.0
            for _ in range(40):
                x = torch.randn(16, 64, generator=made).sdaa()
                worst = max(worst, float((compiled(x) - model(x)).abs().max()))
            return worst

        with ThreadPoolExecutor(4) as pool:
            assert max(pool.map(no_grad(alone), range(4))) < 1e-5

        model[0].weight.data = torch.randn(64, 64).sdaa()  # lies elsewhere now
        x = torch.randn(16, 64).sdaa()
        torch.testing.assert_close(compiled(x).cpu(), model(x).cpu(), rtol=1e-5, atol=1e-5)


def no_grad(function: Any) -> Any:
    """Return a function as a thread runs it without gradients; each thread disables these itself."""
    return torch.no_grad()(function)
