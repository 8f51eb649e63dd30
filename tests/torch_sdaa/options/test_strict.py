"""Strict mode: each rule raises an error of one line, and none does while it is off."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

import torch_sdaa  # noqa: F401 -- makes the device
from torch_sdaa.options import strict


@pytest.fixture
def strict_mode() -> Iterator[None]:
    strict.set_strict(True)
    yield
    strict.set_strict(False)


def _in_thread(do: Callable[[], object]) -> None:
    """Run in a new thread: the first launch of a thread sets its device."""
    import concurrent.futures

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(do).result()


BROKEN: dict[str, tuple[Callable[[], object], str]] = {
    "float64": (lambda: torch.ones(3, device="sdaa", dtype=torch.float64), r"with float64: .*float64\); use float32"),
    "product": (lambda: torch.ones(3, 3).sdaa() @ torch.ones(3, 3).sdaa(), r"aten::mm with float32: .*torch.autocast"),  # type: ignore[attr-defined]
    "infinite": (lambda: torch.ones(3).sdaa().half() * 1e5, r"inf or NaN in a float16 result; .*GradScaler"),  # type: ignore[attr-defined]
    "copied": (lambda: torch.tensor([1e6]).sdaa().half(), r"inf or NaN in a float16 result"),  # type: ignore[attr-defined]
    "maximum": (lambda: torch.ones(3, dtype=torch.int64).sdaa().max(), r"aten::max with int64"),  # type: ignore[attr-defined]
    "stack": (lambda: torch.cat([torch.ones(2).sdaa(), torch.ones(2).sdaa().half()]), r"with float16 and float32"),  # type: ignore[attr-defined]
    "target": (
        lambda: torch.nn.functional.cross_entropy(torch.ones(2, 3).sdaa(), torch.ones(2, dtype=torch.int64).sdaa()),  # type: ignore[attr-defined]
        r"aten::nll_loss_forward with an int64 target: .*\(int64 targets\); use target.to\(torch.int32\)",
    ),
    "shape": (lambda: torch.ones(3, device="sdaa").nonzero(), r"aten::nonzero with a result whose shape depends"),
    "two devices": (
        lambda: (torch.ones(3, device="sdaa:0"), torch.ones(3, device="sdaa:1")),
        r"this thread has used sdaa:0 and now uses sdaa:1; .*one device per thread",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_violations_are_one_line(name: str, strict_mode: None) -> None:
    do, match = BROKEN[name]
    with pytest.raises(RuntimeError, match=match) as caught:
        _in_thread(do)
    assert str(caught.value).startswith("strict mode: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BROKEN)
def test_checks_are_skipped_when_off(name: str) -> None:
    assert not strict.is_strict()
    _in_thread(BROKEN[name][0])


def test_a_step_with_float16_products_is_accepted(strict_mode: None) -> None:
    def step() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("sdaa")
        with torch.autocast("sdaa", dtype=torch.float16):
            loss = model(torch.ones(2, 4).to("sdaa")).float().square().mean()
        loss.backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()

    _in_thread(step)


def test_int32_targets_are_accepted_with_equal_values(strict_mode: None) -> None:
    from torch.nn.functional import cross_entropy

    def loss(logits: torch.Tensor, target: torch.Tensor) -> list[torch.Tensor]:
        leaf = logits.requires_grad_()
        value = cross_entropy(leaf, target, ignore_index=0)
        value.backward()
        assert leaf.grad is not None
        return [value.detach().cpu(), leaf.grad.cpu()]

    for shape in ((5, 3), (2, 3, 4, 4)):
        logits, target = torch.randn(shape), torch.randint(3, (shape[0], *shape[2:]))
        found: list[torch.Tensor] = []
        _in_thread(lambda x=logits, y=target, to=found: to.extend(loss(x.to("sdaa"), y.to(torch.int32).to("sdaa"))))  # type: ignore[misc]
        assert all(map(torch.equal, found, loss(logits.clone(), target)))


def test_every_rule_has_a_source_and_a_fix() -> None:
    assert all(rule.source[:3] in ("002", "004") and rule.fix for rule in strict.RULES)
    assert len({rule.name for rule in strict.RULES}) == len(strict.RULES)
