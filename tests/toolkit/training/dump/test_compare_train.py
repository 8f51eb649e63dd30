"""``teco train compare``, ``teco train replay`` and ``msaccucmp``: the first bad operator of two dumps, single
calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")
pytest.importorskip("rich")

from engine import TecoInferError  # noqa: E402
from toolkit.cli import execute  # noqa: E402
from toolkit.training.dump.judge import unscaled  # noqa: E402
from torch_sdaa.faults.operator_faults import clear, parse, plant  # noqa: E402
from torch_sdaa.utils import dumper  # noqa: E402

pytestmark = pytest.mark.torch

Dumped = Callable[..., Path]


@pytest.fixture
def dumped(tmp_path: Path) -> Dumped:
    def make(
        name: str,
        faults: str = "",
        device: str = "sdaa",
        half: bool = False,
        eps: float = 1e-5,
        scaled: float = 1.0,
        width: int = 8,
        seed: int = 0,
    ) -> Path:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, width), torch.nn.LayerNorm(width, eps), torch.nn.Linear(width, 3)
        )
        model[2].weight.data *= scaled
        torch.manual_seed(seed + 1)
        x, labels = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
        model = model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        plant(*parse(faults))
        path = tmp_path / f"{name}.h5"
        try:
            with dumper(use_dump=True, dump_path=path):
                for _ in range(2):
                    optimizer.zero_grad()
                    with torch.autocast(device, torch.float16, enabled=half):
                        loss = torch.nn.functional.cross_entropy(model(x.to(device)), labels.to(device))
                    loss.backward()
                    optimizer.step()
        except RuntimeError:
            if not faults.startswith("deny"):
                raise
        finally:
            clear()
        return path

    return make


def found(a: Path, b: Path, *words: str) -> tuple[int, Any]:
    file = a.parent / "found.json"
    code = execute(["train", "compare", str(a), str(b), "--json", str(file), *words])
    return code, json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("half", [False, True])
def test_a_healthy_run_has_no_bad_operator(half: bool, dumped: Dumped) -> None:
    code, result = found(dumped("a", device="cpu"), dumped("b", half=half))
    assert (code, result["first_bad"]) == (0, None)
    assert result["schema_version"] == 1
    assert "no bad operator" in result["lead"]
    if not half:
        assert max(row["diff2"] for row in result["rows"] if "diff2" in row) == 0


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "call", "module", "phase"),
    [
        ("perturb:op=aten::addmm,call=2,size=0.05", "aten.addmm.default/2", "Sequential.0", "forward"),
        ("nan:op=aten::mm,call=1", "aten.mm.default/1", "Sequential.2", "backward"),
        ("perturb:op=aten::_foreach_add_", "aten._foreach_add_.List/0", "SGD", "optimizer"),
        ("deny:op=aten::native_layer_norm_backward,call=1", "", "Sequential.1", "backward"),
    ],
)
@pytest.mark.parametrize("half", [False, True])
def test_the_operator_at_fault_is_reported(
    fault: str, call: str, module: str, phase: str, half: bool, dumped: Dumped
) -> None:
    code, result = found(
        dumped("a", device="cpu" if not half and "add_" not in fault else "sdaa"), dumped("b", fault, half=half)
    )
    bad = result["first_bad"]
    assert code == 1
    assert (bad["module"], bad["phase"], bad["at"]) == (module, phase, "b")
    assert bad["call"] == (call or "aten.native_layer_norm_backward.default/1")
    assert "test_compare_train.py:" in bad["source"]
    assert bad["why"].startswith("was refused: sdaa:0 denied" if fault.startswith("deny") else "diff2 ")


def test_the_reference_can_be_at_fault(dumped: Dumped) -> None:
    code, result = found(dumped("a", "perturb:op=aten::addmm,call=1"), dumped("b"))
    assert (code, result["first_bad"]["at"], result["first_bad"]["call"]) == (1, "a", "aten.addmm.default/1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "module", "why"),
    [
        (
            {"eps": 0.5},
            "Sequential.1",
            "other arguments: argument 4 is 0.5, 1e-05 in the reference",
        ),
        ({"scaled": 1.2}, "Sequential.2", "reads another input 2 than the reference, which no operator made"),
        ({"seed": 5}, "", "reads another input 0 than the reference"),
    ],
)
def test_differences_of_the_script_are_reported(changed: dict[str, Any], module: str, why: str, dumped: Dumped) -> None:
    code, result = found(dumped("a"), dumped("b", **changed))
    assert code == 1
    assert result["first_bad"]["module"] == module
    assert why in result["first_bad"]["why"]


def test_without_repetition_the_first_one_is_found_by_its_inputs(dumped: Dumped) -> None:
    code, result = found(dumped("a"), dumped("b", "perturb:op=aten::mm,call=2,size=0.1"), "--no_isolated")
    assert (code, result["first_bad"]["call"]) == (1, "aten.mm.default/2")
    assert "from inputs that agree" in result["first_bad"]["why"]


def test_exact_reports_any_bit(dumped: Dumped) -> None:
    a, b = dumped("a"), dumped("b", "perturb:op=aten::mm,call=2,size=2e-7")
    assert found(a, b)[0] == 0
    code, result = found(a, b, "--exact")
    assert (code, result["first_bad"]["call"]) == (1, "aten.mm.default/2")


def test_the_page_has_a_chart(dumped: Dumped, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    a, b = dumped("a"), dumped("b", "nan:op=aten::mm")
    assert execute(["msaccucmp", "compare", "-m", str(b), "-g", str(a), "--html", str(tmp_path / "p.html")]) == 1
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "aten.mm.default/0" in page
    assert "<polyline" in page
    assert "first bad operator: aten.mm.default/0 of Sequential.2, backward of step 0" in capsys.readouterr().out


def error_of(words: list[str]) -> str:
    with pytest.raises(TecoInferError) as raised:
        execute(words)
    return str(raised.value)


def test_errors_are_one_line(dumped: Dumped, tmp_path: Path) -> None:
    a, other = dumped("a"), dumped("b", width=9)
    line = error_of(["train", "compare", str(a), str(other)])
    assert "Sequential.0.weight is [8, 6] in a.h5 and [9, 6] in b.h5" in line
    cut = tmp_path / "cut.h5"
    cut.write_bytes(a.read_bytes()[:30_000])
    assert "cut.h5 is not a readable HDF5 file" in error_of(["train", "compare", str(a), str(cut)])
    assert "none.h5 does not exist" in error_of(["train", "compare", str(a), str(tmp_path / "none.h5")])
    assert "exclude each other" in error_of(["train", "compare", str(a), str(a), "--exact", "--threshold", "0.1"])
    assert "did you mean 'compare'" in error_of(["msaccucmp", "compar"])
    assert "has no call 'aten.mmm'" in error_of(["train", "replay", str(a), "aten.mmm"])
    assert "device 'sdaa:9' cannot be used" in error_of(["train", "replay", str(a), "mm", "--device", "sdaa:9"])
    assert "'sda' cannot be used: did you mean 'sdaa'?" in error_of(
        ["train", "replay", str(a), "mm", "--device", "sda"]
    )


def test_one_operator_is_repeated(dumped: Dumped, capsys: pytest.CaptureFixture[str]) -> None:
    b = dumped("b", "perturb:op=aten::mm,call=1,size=0.1")
    assert execute(["train", "replay", str(b), "mm/1"]) == 1
    assert "aten.mm.default/1 on cpu differs from the run" in capsys.readouterr().out
    plant(*parse("perturb:op=aten::mm,size=0.1"))
    try:
        assert execute(["train", "replay", str(b), "aten::mm/1", "--device", "sdaa"]) == 0
    finally:
        clear()
    assert "aten.mm.default/1 on sdaa agrees with the run" in capsys.readouterr().out
    assert execute(["train", "replay", str(b)]) == 0
    assert "aten.addmm.default/3" in capsys.readouterr().out


def test_a_refused_operator_is_repeated(dumped: Dumped, capsys: pytest.CaptureFixture[str]) -> None:
    b = dumped("b", "deny:op=aten::mm,call=1")
    assert execute(["train", "replay", str(b), "mm/1"]) == 1
    assert "aten.mm.default/1 runs on cpu; in the run it failed: sdaa:0 denied call 1" in capsys.readouterr().out
    plant(*parse("deny:op=aten::mm"))
    try:
        assert execute(["train", "replay", str(b), "mm/1", "--device", "sdaa"]) == 0
    finally:
        clear()
    assert "fails on sdaa, as in the run" in capsys.readouterr().out


def test_arrays_are_taken_out(dumped: Dumped, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a = dumped("a")
    assert execute(["msaccucmp", "convert", "-d", str(a), "-out", str(tmp_path / "npy"), "-v", "2"]) == 0
    assert "files written to" in capsys.readouterr().out
    assert np.load(tmp_path / "npy" / "aten.addmm.default.0.output.0.npy", allow_pickle=False).shape == (4, 8)


def test_uninitialized_memory_causes_no_warning() -> None:
    signalling = np.array([0x7D01, 0x3C00], np.uint16).view(np.float16)

    found = unscaled(signalling, 2.0)

    assert np.isnan(found[0])
    assert found[1] == 0.5
    assert unscaled(signalling, 1.0) is signalling
