"""Backend ``sdaa`` of ``torch.compile``: dynamic sizes, graph breaks, recurrent networks, ranks, invalid arguments."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import torch_sdaa  # noqa: E402, F401 -- makes the device
from tests.torch_sdaa.distributed.tccl_ranks import hosted  # noqa: E402
from torch_sdaa import dynamo  # noqa: E402

F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    if "ranks" not in request.node.name:  # their processes find the extension in the cache
        monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path / "cache"))
    torch.compiler.reset()
    dynamo.clear()
    yield
    torch.compiler.reset()


class Words(torch.nn.Module):
    """One layer of a small language model."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.three = torch.nn.Embedding(50, 16), torch.nn.Linear(16, 48)
        self.norm, self.last = torch.nn.LayerNorm(16), torch.nn.Linear(16, 50)

    def forward(self, words: Any) -> Any:
        batch, length = words.shape
        places = torch.arange(length, device=words.device)[:, None] * 0.01
        query, key, value = (
            self.three(self.norm(self.table(words) + places)).view(batch, length, 3, 4, 4).permute(2, 0, 3, 1, 4)
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.last(seen.transpose(1, 2).reshape(batch, length, 16))


SIZES = [(2, 5), (3, 7), (4, 8), (2, 5), (1, 6)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("dynamic", "marked", "recompiled"), [(None, (), 2), (True, (), 1), (False, (), 3), (None, (0, 1), 0)]
)
def test_batch_and_sequence_change(dynamic: bool | None, marked: tuple[int, ...], recompiled: int) -> None:
    torch.manual_seed(0)
    plain = Words().sdaa()
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="sdaa", dynamic=dynamic)
    for size in SIZES[:4] if marked else SIZES:
        words = torch.randint(0, 50, size).sdaa()
        for axis in marked:
            torch._dynamo.mark_dynamic(words, axis)
        for function, own in ((plain, plain), (compiled, model)):
            own.zero_grad()
            function(words).square().mean().backward()
        for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    report = dynamo.report()
    assert len(report.recompilations) == recompiled
    assert all(
        "size mismatch" in each.reason or "2 <= words.size()[0]" in each.reason for each in report.recompilations
    )
    assert not report.fallbacks


def test_a_size_of_an_intermediate_tensor_does_not_split_a_partition() -> None:
    torch.manual_seed(0)
    layers = (
        torch.nn.Conv2d(3, 4, 3, 2, 1),
        torch.nn.MaxPool2d(3, 2, 1),
        torch.nn.Upsample(scale_factor=2, mode="bilinear"),
    )
    plain = torch.nn.Sequential(*layers).sdaa()
    model = copy.deepcopy(plain)
    compiled = torch.compile(model, backend="sdaa", dynamic=True)
    for batch, side in ((4, 16), (2, 20), (4, 16)):
        x = torch.randn(batch, 3, side, side).sdaa()
        for function, own in ((plain, plain), (compiled, model)):
            own.zero_grad()
            function(x).square().mean().backward()
        for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert [[len(part.plans) for part in graph.partitions] for graph in dynamo.report().graphs] == [[2], [2]]


def test_graph_breaks_have_their_line(capsys: pytest.CaptureFixture[str]) -> None:
    def function(a: Any) -> Any:
        made = a.sin()
        if made.sum() > 0:
            made = made * 2
        return made.cos() + made.sum().item()

    a = torch.ones(3).sdaa()
    torch.testing.assert_close(torch.compile(function, backend="sdaa")(a), function(a))
    breaks = dynamo.report().graph_breaks
    assert [each.source for each in breaks] == ["if made.sum() > 0:", "return made.cos() + made.sum().item()"]
    assert all(linecache.getline(each.file, each.line).strip() == each.source for each in breaks)
    assert f"graph break at {__file__}:{breaks[0].line} (if made.sum() > 0:): a branch depends on values" in str(
        dynamo.report()
    )
    torch.compiler.reset()
    dynamo.clear()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
        torch.compile(function, backend="sdaa", fullgraph=True)(a)


def test_sizes_that_depend_on_data_stay_with_the_device() -> None:
    a = torch.tensor([1.0, -2.0, 3.0]).sdaa()
    torch.testing.assert_close(torch.compile(lambda v: v[v > 0] * 2, backend="sdaa", fullgraph=True)(a), a[a > 0] * 2)
    assert {each.reason for each in dynamo.report().fallbacks} >= {"the size u0 is unknown before the call"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_networks_compile(kind: str) -> None:
    torch.manual_seed(0)
    plain = getattr(torch.nn, kind)(4, 8, 2, batch_first=True, dropout=0.5).sdaa()
    model = copy.deepcopy(plain)
    a = torch.randn(2, 5, 4).sdaa()
    outputs = []
    for function in (plain, torch.compile(model, backend="sdaa")):
        torch.sdaa.manual_seed(1)
        outputs.append(function(a)[0])
        outputs[-1].sum().backward()
    torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-5)
    assert not dynamo.report().fallbacks


def test_layers_of_one_dnn_stay_single_launches() -> None:
    torch.manual_seed(0)
    model = torch.nn.LSTM(4, 8, 2, batch_first=True).sdaa()
    function, a = torch.compile(lambda x: model(x * 2)[0] + 1, backend="sdaa"), torch.randn(2, 5, 4).sdaa()
    want = model(a * 2)[0] + 1
    assert torch.equal(function(a), want)  # compiled steps would round differently
    with torch.profiler.profile() as profile:
        function(a).sum().backward()
    names = [event.name for event in profile.events()]
    assert names.count("aten::mkldnn_rnn_layer") == 2
    assert "aten::sigmoid" not in names


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_modes_and_other_backends_are_errors() -> None:
    a = torch.ones(3).sdaa()
    for more, message in (
        (
            {"backend": "sdaa", "mode": "max-autotune"},
            "mode='max-autotune'.*backend 'sdaa' has no modes: omit mode",
        ),
        ({"backend": "sdaa", "options": {"recompte": True}}, "no option 'recompte'; did you mean 'recompute'"),
        ({}, "inductor, does not support sdaa: pass backend='sdaa'"),
    ):
        torch.compiler.reset()
        with pytest.raises(Exception, match=message):
            torch.compile(lambda v: v + 1, **more)(a)
    torch.compiler.reset()
    assert torch.compile(lambda v: v + 1, backend="sdaa", mode="default")(a).tolist() == [2, 2, 2]


@pytest.mark.long
def test_two_ranks_with_ddp_and_fsdp(tmp_path: Path) -> None:
    with hosted(tmp_path) as host:
        first, second = host.values(2, "compiled_ranks:wrapped", timeout=300)
    for found in (first, second):
        for name in ("ddp", "fsdp"):
            assert found[f"{name} compiled"] == pytest.approx(found[name], rel=1e-5)
            assert found[f"{name} graphs"] == []
            assert {stage for stage, _ in found[f"{name} compiled graphs"]} == {"forward", "backward"}
            assert all(left == 0 for _, left in found[f"{name} compiled graphs"])
    assert first["ddp compiled"] == second["ddp compiled"]


def test_a_function_beyond_the_recompile_limit_is_in_the_report() -> None:
    function = torch.compile(lambda v: v.sin() * 2, backend="sdaa", dynamic=False)
    with torch._dynamo.config.patch(recompile_limit=2):
        for size in range(1, 6):
            function(torch.ones(size, device="sdaa"))
    found = dynamo.report()
    assert [each.given_up for each in found.recompilations] == [False, True]
    assert {each.function for each in found.recompilations} == {"<lambda>"}
    assert "not compiled again, runs uncompiled: " in str(found)
    assert "recompile_limit is reached; " in str(found)


def test_an_unbacked_size_stays_on_the_device() -> None:
    function = torch.compile(lambda v: (v * 2).sum(1), backend="sdaa")
    for size in (4, 6):
        given = torch.ones(size, 3, device="sdaa")
        torch._dynamo.decorators.mark_unbacked(given, 0)
        assert function(given).tolist() == [6.0] * size
    assert any("is unknown before the call" in each.reason for each in dynamo.report().fallbacks)
