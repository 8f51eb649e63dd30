"""teco optest of a call of a training dump: the case passes on the device, and fails for other values."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("h5py")
pytest.importorskip("torch_sdaa")

from engine import DataError  # noqa: E402
from engine.training import read_call  # noqa: E402
from toolkit.commands import optest  # noqa: E402
from toolkit.optest.aten import write_aten_case  # noqa: E402
from torch_sdaa.faults import operator_faults  # noqa: E402
from torch_sdaa.utils import dumper  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dump calls of several kinds; the second addmm is wrong, and the third fails."""
    file = tmp_path_factory.mktemp("optest") / "card.h5"
    torch.manual_seed(0)
    layer, norm = torch.nn.Linear(3, 4).to("sdaa"), torch.nn.BatchNorm1d(4).to("sdaa")
    x = torch.randn(2, 3).to("sdaa")
    operator_faults.plant(
        operator_faults.OpFault("perturb", "aten::addmm", 1), operator_faults.OpFault("deny", "aten::addmm", 2)
    )
    try:
        with dumper(use_dump=True, dump_path=file):
            torch.dropout(norm(layer(x)).bfloat16(), 0.5, train=True).add_(1)
            torch.sparse.mm(torch.eye(2).to_sparse(), torch.ones(2, 2))
            layer(x)
            with pytest.raises(RuntimeError, match="denied"):
                layer(x)
    finally:
        operator_faults.clear()
    return file


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("aten.addmm.default/0", 0),
        ("aten.addmm.default/1", 1),
        ("native_dropout", 0),
        ("native_batch_norm", 0),
        ("aten.add_.Tensor", 0),
    ],
)
def test_a_call_is_run_on_the_device(
    call: str, code: int, dump: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "case"
    assert optest.main([str(dump), call, "--out", str(out)]) == code
    assert (": passes on " in capsys.readouterr().out) == (code == 0)
    name = read_call(dump, call).call.where.replace(".", "_").replace("/", "_").replace("__", "_").lower()
    assert sorted(path.name for path in out.iterdir() if path.is_file()) == ["call.json", "data.npz", f"test_{name}.py"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("aten.addm.default", "has no call"),
        ("aten.addmm.default/7", "has no call 'aten.addmm.default/7'"),
        ("aten.addmm.default/2", "failed .*denied"),
        ("aten._sparse_addmm.default/0", "argument that is not in the dump"),
    ],
)
def test_invalid_calls(call: str, message: str, dump: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        write_aten_case(dump, call, tmp_path / "out")


def test_invalid_dump(dump: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        write_aten_case(tmp_path / "none.h5", "aten.addmm.default")
    (tmp_path / "cut.h5").write_bytes(dump.read_bytes()[:500])
    with pytest.raises(DataError, match="cut short"):
        write_aten_case(tmp_path / "cut.h5", "aten.addmm.default")
