"""Correct operators on a wrong value of the run, gradients that add up, and runs in another order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")
pytest.importorskip("torch_sdaa")

from engine.training import open_training_dump  # noqa: E402
from toolkit.training.dump.isolated import Repeater  # noqa: E402
from toolkit.training.dump.judge import Pair, judged  # noqa: E402
from torch_sdaa.utils import dumper  # noqa: E402

pytestmark = pytest.mark.torch
functional, optim = torch.nn.functional, torch.optim


class Attention(torch.nn.Module):
    def __init__(self, reads: str = "") -> None:
        super().__init__()
        self.embed, self.norm, self.head = torch.nn.Embedding(9, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 3)
        self.query, self.key, self.value = (torch.nn.Linear(8, 8) for _ in range(3))
        self.reads = reads

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        query, key, value = self.query(x), self.key(x), self.value(x)
        found = query @ (query if self.reads == "query" else key).transpose(1, 2)
        y = found.softmax(-1) @ value
        y = self.norm(x + (x if self.reads == "twice" else y))
        return self.head(y[:, 0] if self.reads == "first" else y[:, -1])


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(9, 4), torch.nn.Linear(8, 3)
        self.cells = torch.nn.LSTM(4, 4, bidirectional=True)

    def forward(self, tokens: Any) -> Any:
        packed = torch.nn.utils.rnn.pack_padded_sequence(self.embed(tokens), torch.tensor([4, 3, 1]))
        return self.head(torch.nn.utils.rnn.pad_packed_sequence(self.cells(packed)[0])[0]).mean(0)


class Noisy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = torch.nn.Embedding(9, 5), torch.nn.Linear(5, 3)

    def forward(self, tokens: Any) -> Any:
        x = self.head(self.embed(tokens)).flatten()[:20]
        return self.head((x + torch.randn_like(x)).view(4, 5))[:3]


class Many(torch.nn.Module):
    """Attention with one bias for three layers, of which the second has no gradient but rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.inner = torch.nn.Embedding(9, 8), torch.nn.MultiheadAttention(8, 2)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        return self.head((x + self.inner(x, x, x)[0]).mean(0))


def train(
    path: Path,
    device: str = "sdaa",
    half: Any = None,
    model: Callable[[], Any] = Attention,
    optimizer: Callable[[Any], Any] = lambda p: optim.AdamW(p, 1e-2),
    added: bool = False,
    factor: float = 1.0,
    since: int = 0,
) -> Path:
    torch.manual_seed(0)
    net = model()
    tokens = torch.randint(0, 9, (3, 4) if isinstance(net, Attention) else (4, 3)).to(device)
    net, labels = net.to(device), torch.tensor([0, 2, 1]).to(device)
    steps = optimizer(net.parameters())
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=half is torch.float16)
    torch.manual_seed(1)
    with dumper(use_dump=True, dump_path=path):
        for step in range(2):
            if not added:
                steps.zero_grad()
            with torch.autocast(device, half, enabled=half is not None):
                loss = functional.cross_entropy(net(tokens), labels)
                loss = loss if factor == 1.0 or step < since else loss * factor
            scaler.scale(loss).backward()
            scaler.step(steps)
            scaler.update()
    return path


def bad(a: Path, b: Path) -> Pair | None:
    with open_training_dump(a) as one, open_training_dump(b) as other:
        return judged(one, other, None, Repeater(), False).first_bad


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sdaa"])
@pytest.mark.parametrize(
    ("reads", "op", "why"),
    [
        ("query", "aten.bmm.default/0", "reads what aten.addmm.default/0"),
        ("twice", "aten.add.Tensor/0", "reads what aten.embedding.default/0"),
        ("first", "aten.select.int/0", "argument 2 is 0, -1 in the reference"),
    ],
)
def test_a_call_that_reads_another_value_is_reported(
    tmp_path: Path, device: str, reads: str, op: str, why: str
) -> None:
    # Every operator computes correctly, none is missing: a different value, or a different part of it, is read.
    found = bad(train(tmp_path / "a.h5", device), train(tmp_path / "b.h5", model=lambda: Attention(reads)))
    assert found is not None
    assert (found.b.where, found.b.module) == (op, "Attention")
    assert why in found.why
    assert found.b.source.startswith("tests/toolkit/training/dump/test_read_otherwise.py")


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "sdaa"])
def test_accumulated_gradients_are_reported(tmp_path: Path, device: str) -> None:
    # With the CPU as the reference only operators of the optimizer read them, and those have no match.
    found = bad(train(tmp_path / "a.h5", device), train(tmp_path / "b.h5", added=True))
    assert found is not None
    assert found.b.op == "aten.add_.Tensor"
    assert (found.b.phase, found.b.step) == ("backward", 1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("half", "since"), [(None, 0), (torch.float16, 0), (torch.float16, 1)])
def test_the_loss_scale_is_not_a_fault(tmp_path: Path, half: Any, since: int) -> None:
    # The second step's scale was updated by operators of the scaler, which the reference has not.
    found = bad(train(tmp_path / "a.h5"), train(tmp_path / "b.h5", half=half, factor=0.5, since=since))
    assert found is not None
    assert found.b.op == "aten.mul.Tensor"
    assert found.b.phase == "forward"


@pytest.mark.slow
def test_foreach_nesterov_writes_into_gradients(tmp_path: Path) -> None:
    def optimizer(momentum: float) -> Callable[[Any], Any]:
        return lambda p: optim.SGD(p, 0.1, momentum=momentum, nesterov=True)

    a = train(tmp_path / "a.h5", "cpu", optimizer=optimizer(0.9))
    assert bad(a, train(tmp_path / "b.h5", optimizer=optimizer(0.9))) is None
    found = bad(a, train(tmp_path / "c.h5", optimizer=optimizer(0.8)))
    assert found is not None
    assert found.b.phase == "optimizer"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "optimizer", "half"),
    [
        (Tagger, lambda p: optim.Adagrad(p, 0.05), torch.float16),
        (Many, lambda p: optim.Adamax(p, 1e-2), torch.float16),
        (Many, lambda p: optim.Adamax(p, 1e-2), torch.bfloat16),
    ],
    ids=["order", "noise", "coarse noise"],
)
def test_another_order_and_foreach_steps_are_not_faults(
    tmp_path: Path, model: Any, optimizer: Callable[[Any], Any], half: Any
) -> None:
    # The CPU casts weights one by one, and steps parameter by parameter.
    a = train(tmp_path / "a.h5", "cpu", half, model, optimizer)
    found = bad(a, train(tmp_path / "b.h5", "sdaa", half, model, optimizer))
    assert found is None, found.why


def test_random_numbers_of_another_dtype_are_reported(tmp_path: Path) -> None:
    a = train(tmp_path / "a.h5", "cpu", model=Noisy)
    found = bad(a, train(tmp_path / "b.h5", "cpu", torch.bfloat16, Noisy))
    assert found is not None
    assert found.b.where == "aten.randn_like.default/0"
    assert "in bfloat16 than the reference does in float32" in found.why


def test_long_lists_are_abbreviated(tmp_path: Path) -> None:
    def optimizer(net: Any) -> Any:
        return optim.SGD([one for one in net if one.dim() == 2], 0.1)

    a = train(tmp_path / "a.h5", optimizer=lambda p: optim.SGD(p, 0.1))
    found = bad(a, train(tmp_path / "b.h5", optimizer=optimizer))
    assert found is not None
    assert found.why.endswith("argument 0 is 5 tensors, 11 tensors in the reference")
