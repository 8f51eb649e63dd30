"""example/training/shufflenet: the same values in every step of the case, and predicted gains within 10 %."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support import ROOT, RunPython

torch: Any = pytest.importorskip("torch")
import torch_sdaa  # noqa: E402, F401 -- here, before a test gets a cache folder of its own, where it would be compiled anew

pytest.importorskip("torchvision")  # after torch_sdaa, which lets it be imported beside any build of PyTorch

pytestmark = pytest.mark.torch
FOLDER = ROOT / "example" / "training" / "shufflenet"
PAGE = (ROOT / "docs" / "how-to" / "training_performance.md").read_text(encoding="utf-8").split("\n## 7. ")[1]


@pytest.fixture(scope="module")
def scripts() -> Iterator[tuple[Any, Any]]:
    """``network.py`` and ``steps.py`` as modules."""
    before = set(sys.modules)
    sys.path.insert(0, str(FOLDER))
    try:
        import network
        import steps

        yield network, steps
    finally:
        sys.path.remove(str(FOLDER))
        for name in {"network", "steps"} - before:
            sys.modules.pop(name, None)


def _gradients(network: Any, mix: str | None) -> list[Any]:
    torch.manual_seed(0)
    model = network.shufflenet(mix, 10).to("sdaa")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to("sdaa")
    loss = torch.nn.functional.cross_entropy(model(images), torch.tensor([1, 7]).to("sdaa"))
    loss.backward()
    state = model.state_dict()
    return [sorted(state), loss.cpu(), *(param.grad.cpu() for _, param in sorted(model.named_parameters()))]


@pytest.mark.slow
@pytest.mark.long
def test_every_way_has_the_same_values_and_names(scripts: tuple[Any, Any]) -> None:
    network, _ = scripts
    names, *wanted = _gradients(network, None)
    for mix in network.MIXES:
        found_names, *found = _gradients(network, mix)
        assert found_names == names, mix
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True)), mix


@pytest.mark.slow
@pytest.mark.long
def test_gains_are_predicted_within_ten_percent(scripts: tuple[Any, Any]) -> None:
    _, steps = scripts
    rows = [steps.row(change, 2, 32, True) for change in steps.CHANGES]
    for before, after in itertools.pairwise(rows):
        predicted, seen = before.predicted - after.predicted, before.observed - after.observed
        assert predicted == pytest.approx(seen, rel=0.1, abs=1e-6), after.change
        assert after.predicted == pytest.approx(after.observed, rel=0.1)
        assert after.launches == pytest.approx(after.observed_launches, rel=0.02)


@pytest.mark.slow
@pytest.mark.long
def test_page_equals_the_output(run_python: RunPython) -> None:
    commands = re.findall(r"^python (?:example/training/shufflenet/)?(\S+\.py)(.*)$", PAGE, re.MULTILINE)
    shown = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(commands) == len(shown) == 2
    for (script, flags), text in zip(commands, shown, strict=True):
        done = run_python(str(FOLDER / script), *flags.split())
        assert done.stdout == text


@pytest.mark.slow
@pytest.mark.long
def test_the_page_shows_the_librarys_table(run_python: RunPython) -> None:
    done = run_python(str(ROOT / "benchmarks" / "bench_optimized_lib.py"), "--markdown")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in PAGE


@pytest.mark.slow
def test_invalid_flags(run_python: RunPython) -> None:
    done = run_python(str(FOLDER / "steps.py"), "--size", "16")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2,
        "steps.py: error: --batch 8 must be at least 1, --size 16 at least 32",
    )
