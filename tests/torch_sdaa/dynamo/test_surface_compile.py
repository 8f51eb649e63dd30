"""``torch.compile`` of functions that use the device, with backends that change no numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

pytestmark = [pytest.mark.torch, pytest.mark.slow]

_BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager"])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@_BACKENDS
def test_forward_and_backward(backend: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).sdaa(1)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).sdaa(1)
    model(x).sum().backward()
    expected = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()
    torch.compile(model, backend=backend, fullgraph=True)(x).sum().backward()

    assert all(torch.equal(each.grad, grad) for each, grad in zip(model.parameters(), expected, strict=True))


@_BACKENDS
def test_streams_events_and_device_queries_stay_in_one_graph(backend: str) -> None:
    def work(x: Any) -> Any:
        side, done = torch.sdaa.Stream(), torch.sdaa.Event()
        side.wait_stream(torch.sdaa.current_stream())
        with torch.sdaa.stream(side):
            y = x * 2
            done.record()
        torch.sdaa.current_stream().wait_event(done)
        torch.sdaa.synchronize()
        return y + torch.sdaa.device_count() + torch.sdaa.current_device()

    stream = torch.sdaa.current_stream()
    made = torch.compile(work, backend=backend, fullgraph=True)(torch.ones(2, device="sdaa"))

    assert made.tolist() == [6, 6]
    assert torch.sdaa.current_stream() == stream


@_BACKENDS
def test_a_change_of_device_is_made(backend: str) -> None:
    def work(x: Any) -> Any:
        with torch.sdaa.device(1):
            inside = torch.ones(1, device="sdaa")
        return x + 1, inside, torch.ones(1, device="sdaa")

    made = torch.compile(work, backend=backend)(torch.ones(1, device="sdaa"))

    assert [str(each.device) for each in made] == ["sdaa:0", "sdaa:1", "sdaa:0"]
    assert torch.sdaa.current_device() == 0


def test_a_compiled_function_follows_the_current_device() -> None:
    compiled = torch.compile(lambda x: x + torch.sdaa.current_device(), backend="eager")
    x = torch.zeros(1, device="sdaa:0")
    first = compiled(x).item()
    with torch.sdaa.device(2):
        second = compiled(x).item()

    assert (first, second) == (0, 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which inductor imports
@pytest.mark.parametrize(
    "work",
    [
        lambda x: x.relu() + 1,
        lambda x: torch.nn.functional.layer_norm(x, (2,)).softmax(-1),
        lambda x: x.cpu() + torch.ones(2, device="sdaa").sum().cpu(),
    ],
)
def test_inductor_is_an_error_of_one_line_with_the_backend(work: Any) -> None:
    torch.compiler.reset()
    with pytest.raises(RuntimeError) as caught:
        torch.compile(work)(torch.ones(2, device="sdaa"))
    assert "\n" not in str(caught.value)
    assert "backend='sdaa'" in str(caught.value)


@_BACKENDS
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_is_the_attention_that_it_describes(backend: str) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()
    made = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 16, 8, generator=made).sdaa().requires_grad_() for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="sdaa")
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().sum().backward()
    expected = [x.grad for x in (q, k, v)]
    for attend in (flex_attention, torch.compile(flex_attention, backend=backend)):
        q.grad = k.grad = v.grad = None
        found = attend(q, k, v, block_mask=mask)
        found.square().sum().backward()
        assert found.device == q.device
        for mine, theirs in zip((q.grad, k.grad, v.grad), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


@_BACKENDS
def test_attention_is_traced(backend: str) -> None:
    def attend(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    x = torch.randn(2, 2, 4, 8, generator=torch.Generator().manual_seed(0)).sdaa().requires_grad_()
    attend(x).sum().backward()
    expected, x.grad = x.grad, None
    made = torch.compile(attend, backend=backend, fullgraph=True)(x)
    made.sum().backward()

    assert torch.allclose(made, attend(x), rtol=1e-5, atol=1e-6)
    assert torch.allclose(x.grad, expected, rtol=1e-5, atol=1e-6)
