"""Faults without a wrong operator: hyperparameters, buffers, repeated forwards; scratch memory is not a fault."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")
pytest.importorskip("torch_sdaa")

from torch.utils.checkpoint import checkpoint  # noqa: E402

from engine.training import OpCall, open_training_dump  # noqa: E402
from toolkit.training.dump.isolated import Repeater  # noqa: E402
from toolkit.training.dump.judge import judged  # noqa: E402
from torch_sdaa.faults.operator_faults import OpFault, clear, plant  # noqa: E402
from torch_sdaa.utils import dumper, first_difference  # noqa: E402

pytestmark = pytest.mark.torch


def first_bad(a: Path, b: Path) -> OpCall | None:
    with open_training_dump(a) as one, open_training_dump(b) as other:
        bad = judged(one, other, None, Repeater(), False).first_bad
    return bad.b if bad is not None else None


class Net(torch.nn.Module):
    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8)
        self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU(), torch.nn.Linear(8, 2))
        self.reentrant = reentrant

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inner, self.norm(self.first(x)), use_reentrant=self.reentrant)


def train(
    path: Path,
    device: str = "sdaa",
    optimizer: Callable[[Any], Any] = lambda p: torch.optim.AdamW(p, 1e-3),
    changed: Callable[[Net], None] = lambda net: None,
    reentrant: bool = False,
    cleared: bool = True,
    half: bool = False,
) -> Path:
    torch.manual_seed(0)
    net = Net(reentrant)
    changed(net)
    x = torch.randn(4, 6).to(device)
    net = net.to(device)
    steps = optimizer(net.parameters())
    with dumper(use_dump=True, dump_path=path):
        for _ in range(2):
            if cleared:
                steps.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=half):
                loss = net(x).square().mean()
            loss.backward()
            steps.step()
    return path


SGD, AdamW, RMSprop = torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("device", ["cpu", "sdaa"])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (lambda p: AdamW(p, 1e-3), lambda p: AdamW(p, 1.1e-3)),
        (lambda p: AdamW(p, 1e-3, weight_decay=0.01), lambda p: AdamW(p, 1e-3, weight_decay=0.1)),
        (lambda p: AdamW(p, 1e-3), lambda p: AdamW(p, 1e-3, betas=(0.9, 0.99))),
        (lambda p: SGD(p, 0.1, 0.9), lambda p: SGD(p, 0.1, 0.8)),
        (lambda p: RMSprop(p, 0.01), lambda p: RMSprop(p, 0.01, alpha=0.9)),
    ],
)
def test_a_hyperparameter_is_found_with_other_operators_on_the_cpu(
    device: str, right: Any, wrong: Any, tmp_path: Path
) -> None:
    a = train(tmp_path / "a.h5", device, right)
    assert first_bad(a, train(tmp_path / "same.h5", "sdaa", right)) is None
    bad = first_bad(a, train(tmp_path / "b.h5", "sdaa", wrong))
    assert bad is not None
    assert bad.phase == "optimizer"
    assert bad.module == type(wrong([torch.zeros(1)])).__name__
    assert bad.source.startswith("tests")


def notes(a: Path, b: Path) -> list[str]:
    with open_training_dump(a) as one, open_training_dump(b) as other:
        return judged(one, other, None, Repeater(), False).notes


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", [lambda p: SGD(p, 0.1), lambda p: SGD(p, 0.1, 0.9), lambda p: AdamW(p, 1e-3)])
def test_gradients_that_were_not_cleared_are_recognized_by_their_sums(
    optimizer: Any, half: bool, tmp_path: Path
) -> None:
    a = train(tmp_path / "a.h5", "cpu", optimizer)
    b = train(tmp_path / "b.h5", "sdaa", optimizer, cleared=False, half=half)
    found = [line for line in notes(a, b) if "cleared" in line]
    assert len(found) == 1
    assert type(optimizer([torch.zeros(1)])).__name__ in found[0]
    bad = first_bad(a, b)
    assert bad is not None
    assert (bad.op, bad.phase, bad.step) == ("aten.add_.Tensor", "backward", 1)
    for name, other in (("c.h5", optimizer), ("d.h5", lambda p: SGD(p, 0.3))):
        right = notes(a, train(tmp_path / name, "sdaa", other, half=half))
        assert not [line for line in right if "cleared" in line]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", ["running_var", "momentum"])
def test_running_statistics_are_compared(name: str, tmp_path: Path) -> None:
    def changed(net: Net) -> None:
        if name == "momentum":
            net.norm.momentum = 0.3
        else:
            net.norm.running_var.mul_(2)

    bad = first_bad(train(tmp_path / "a.h5"), train(tmp_path / "b.h5", changed=changed))
    assert bad is not None
    assert (bad.op, bad.module) == ("aten.native_batch_norm.default", "Net.norm")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_repeated_forward_has_its_module_and_line(reentrant: bool, tmp_path: Path) -> None:
    a = train(tmp_path / "a.h5", reentrant=reentrant)
    with open_training_dump(a) as dump:
        assert [call.where for call in dump.calls if not call.source] == []
        again = [call for call in dump.calls if call.op == "aten.silu.default" and call.phase == "backward"]
        assert [call.module for call in again] == ["Net.inner.1"] * 2
        back = [call.module for call in dump.calls if call.op == "aten.silu_backward.default"]
        assert back == ["Net.inner.1"] * 2
    plant(OpFault("perturb", "aten::silu", 3))
    try:
        b = train(tmp_path / "b.h5", reentrant=reentrant)
    finally:
        clear()
    bad = first_bad(a, b)
    assert bad is not None
    assert (bad.where, bad.module) == ("aten.silu.default/3", "Net.inner.1")


def test_scratch_memory_of_an_lstm_is_not_compared(tmp_path: Path) -> None:
    def run(device: str = "cpu") -> Any:
        torch.manual_seed(0)
        rnn = torch.nn.LSTM(4, 5, batch_first=True).to(device)
        for _ in range(2):
            rnn(torch.randn(2, 3, 4).to(device))[0].sum().backward()

    assert first_difference(run) is None
    for device in ("cpu", "sdaa"):
        with dumper(use_dump=True, dump_path=tmp_path / f"{device}.h5"):
            run(device)
    assert first_bad(tmp_path / "cpu.h5", tmp_path / "sdaa.h5") is None


def test_a_compiled_model_is_dumped_operator_by_operator(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to("sdaa")
    x = torch.randn(2, 4).to("sdaa")
    compiled = torch.compile(net, backend="sdaa")
    for name, one in (("plain", net), ("compiled", compiled)):
        with warnings.catch_warnings(), dumper(use_dump=True, dump_path=tmp_path / f"{name}.h5"):
            warnings.filterwarnings("ignore", message="Using `torch.compile")
            one(x).sum().backward()
    assert first_bad(tmp_path / "plain.h5", tmp_path / "compiled.h5") is None
    with open_training_dump(tmp_path / "compiled.h5") as dump:
        assert dump.call("aten.addmm.default/0").module == "Sequential.0"
