"""Operators of one run only, other arguments and batches: reported if later values are off, and only then."""

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
from toolkit.training.dump.judge import Judged, judged  # noqa: E402
from torch_sdaa.utils import dumper  # noqa: E402

pytestmark = pytest.mark.torch
functional = torch.nn.functional


class Net(torch.nn.Module):
    """One line per operator, so that every change has its own line."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(2, 4, 3), torch.nn.BatchNorm2d(4, options.get("eps", 1e-5))
        self.drop, self.head = torch.nn.Dropout2d(options.get("p", 0.5)), torch.nn.Linear(16, 3)
        self.act: Callable[..., Any] | None = options.get("act", functional.relu)

    def forward(self, x: Any) -> Any:
        x = self.norm(self.conv(x))
        if self.act is not None:
            x = self.act(x)
        return self.head(self.drop(x).flatten(1))


def loss_of(out: Any, labels: Any, **options: Any) -> Any:
    loss = functional.cross_entropy(out, labels, label_smoothing=options.get("smoothing", 0.0))
    return loss if options.get("whole") else loss / 2


def train(path: Path, device: str = "sdaa", half: Any = None, **options: Any) -> Path:
    torch.manual_seed(0)
    model = Net(**options)
    batches = [(torch.randn(4, 2, 4, 4), torch.tensor([0, 1, 2, 0])) for _ in range(2)]
    if "batch" in options:
        batches[options["batch"]][0].add_(0.1)
    model = model.to(device)
    if options.get("evaluated"):
        model.norm.eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler(device, init_scale=256.0, enabled=half is torch.float16)
    torch.manual_seed(options.get("seed", 1))
    with dumper(use_dump=True, dump_path=path):
        for x, labels in batches:
            optimizer.zero_grad()
            with torch.autocast(device, half, enabled=half is not None):
                loss = loss_of(model(x.to(device)), labels.to(device), **options)
            scaler.scale(loss).backward()
            if options.get("clip", 1e-3):
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), options.get("clip", 1e-3))
            scaler.step(optimizer)
            scaler.update()
    return path


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("healthy")
    return {device: train(folder / f"{device}.h5", device) for device in ("cpu", "sdaa")}


def compared(a: Path, b: Path) -> Judged:
    with open_training_dump(a) as one, open_training_dump(b) as other:
        return judged(one, other, None, Repeater(), False)


@pytest.mark.long
@pytest.mark.parametrize("reference", ["sdaa", pytest.param("cpu", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("options", "call", "why"),
    [
        ({"act": functional.gelu}, "aten.gelu.default/0", "replaces aten.relu.default/0"),
        ({"act": None}, "aten.mul.Tensor/", "aten.relu.default/0"),
        ({"smoothing": 0.1}, "aten.", "has no match in the reference"),
        ({"whole": True}, "aten.", "aten.div.Tensor/"),
        ({"evaluated": True}, "aten.native_batch_norm.default/0", "gives 3 results, 5 in the reference, from other"),
        ({"eps": 1e-6}, "aten.native_batch_norm.default/0", "argument 7 is 1e-06, 1e-05 in the reference"),
        ({"p": 0.4}, "aten.bernoulli_.float/0", "from other arguments: argument 1 is 0.6, left out in the reference"),
        ({"seed": 2}, "aten.bernoulli_.float/0", "draws other random numbers"),
        ({"batch": 0}, "aten.", "reads another input 0 than the reference, which no operator made"),
        ({"batch": 1}, "aten.", "reads another input 0 than the reference, which no operator made"),
        ({"clip": 2e-3}, "aten.", "from other arguments: argument 1 is 0.002, 0.001 in the reference"),
        ({"clip": 0.0}, "aten.", "aten._foreach_norm.Scalar/0"),
    ],
)
def test_operators_of_one_run_only_are_reported(
    reference: str, options: dict[str, Any], call: str, why: str, healthy: dict[str, Path], tmp_path: Path
) -> None:
    bad = compared(healthy[reference], train(tmp_path / "b.h5", **options)).first_bad
    assert bad is not None
    assert bad.b.where.startswith(call)
    assert why in bad.why
    assert bad.b.step == options.get("batch", 0)
    if "smoothing" in options or "whole" in options:
        assert " in loss_of" in bad.why + bad.b.source


@pytest.mark.long
@pytest.mark.parametrize("half", [None, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reference", ["sdaa", pytest.param("cpu", marks=pytest.mark.slow)])
def test_a_healthy_run_has_no_fault(reference: str, half: Any, healthy: dict[str, Path], tmp_path: Path) -> None:
    found = compared(healthy[reference], train(tmp_path / "b.h5", half=half))
    assert found.first_bad is None
    if half is None:
        assert found.first_off is None
