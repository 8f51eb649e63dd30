"""DLRM and Wide & Deep: what they compute, and weights of one's own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from engine import EngineSpec, ModelError, open_engine
from utils.datasets.tabular.criteo import CriteoRows
from utils.preprocess.features import Features
from utils.tasks.model import Model

FOLDER = Path(__file__).parents[2] / "example/recommendation"
DATA = FOLDER / "dlrm/data/clicks.txt"

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def own(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, ModuleType]:
    """The modules of a folder."""
    monkeypatch.syspath_prepend(str(FOLDER / request.param))
    names = ("model", "export_onnx")
    for name in names:
        sys.modules.pop(name, None)
    found = {name: importlib.import_module(name) for name in names}
    for name in names:  # no monkeypatch: it would put them back
        del sys.modules[name]
    return found


def drawn(count: int, rows: int) -> tuple[Any, Any]:
    import torch

    chance = torch.Generator().manual_seed(0)
    return torch.randint(0, rows, (count, 26), generator=chance), torch.rand(count, 13, generator=chance)


@pytest.mark.parametrize("own", ["dlrm"], indirect=True)
def test_dlrm_equals_its_definition(own: dict[str, ModuleType]) -> None:
    """Products of each pair, in the order of the authors' program, computed here one by one."""
    import torch

    torch.manual_seed(0)
    network = own["model"].DLRM(own["model"].Size(3, (7,) * 26, (5, 3), (4,))).eval()
    ids, dense = drawn(6, 7)
    weights = {key: value.numpy() for key, value in network.state_dict().items()}

    def layers(x: Any, name: str, places: tuple[int, ...]) -> Any:
        for place in places:
            x = x @ weights[f"{name}.{place}.weight"].T + weights[f"{name}.{place}.bias"]
            x = np.maximum(x, 0) if name == "bot_l" or place != places[-1] else 1 / (1 + np.exp(-x))
        return x

    wanted = []
    for row in range(6):
        counts = layers(dense[row].numpy(), "bot_l", (0, 2))
        vectors = [counts, *(weights[f"emb_l.{t}.weight"][int(ids[row, t])] for t in range(26))]
        products = [float(vectors[i] @ vectors[j]) for i in range(27) for j in range(i)]
        wanted.append(layers(np.concatenate([counts, products]), "top_l", (0, 2))[0])
    with torch.no_grad():
        np.testing.assert_allclose(network(ids, dense).numpy(), wanted, rtol=1e-5)
    assert own["export_onnx"].size_of(network.state_dict(), Path("w.pt")) == own["model"].Size(
        3, (7,) * 26, (5, 3), (4,)
    )


@pytest.mark.parametrize("own", ["wide_deep"], indirect=True)
def test_wide_deep_equals_its_definition(own: dict[str, ModuleType]) -> None:
    import torch

    torch.manual_seed(0)
    size = own["model"].Size(2, (9,) * 26, (4, 3), crosses=((0, 5),), cross_rows=11)
    network = own["model"].WideDeep(size).eval()
    for value in network.parameters():
        torch.nn.init.normal_(value)
    ids, dense = drawn(5, 9)
    weights = {key: value.detach().numpy().astype(np.float64) for key, value in network.state_dict().items()}
    wanted = []
    for row, x in zip(ids.tolist(), dense.numpy(), strict=True):
        total = sum(weights[f"linear_model.embedding_dict.C{t + 1}.weight"][row[t], 0] for t in range(26))
        total += x @ weights["linear_model.weight"][:, 0] + weights["out.bias"][0]
        total += weights["crosses.0.weight"][(row[0] * own["model"].PRIME + row[5]) % 11, 0]
        hidden = np.concatenate([*(weights[f"embedding_dict.C{t + 1}.weight"][row[t]] for t in range(26)), x])
        for layer in range(2):
            hidden = np.maximum(
                weights[f"dnn.linears.{layer}.weight"] @ hidden + weights[f"dnn.linears.{layer}.bias"], 0
            )
        wanted.append(1 / (1 + np.exp(-(total + weights["dnn_linear.weight"][0] @ hidden))))
    with torch.no_grad():
        np.testing.assert_allclose(network(ids, dense).numpy(), wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("own", ["dlrm", "wide_deep"], indirect=True)
def test_user_weights_load_and_outputs_equal_torch(
    own: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    torch.manual_seed(1)
    dlrm = hasattr(own["model"], "DLRM")
    rows = (70_000,) + (50,) * 25  # rows beyond what float16 counts to
    size = own["model"].Size(4, rows, (8, 4), (8,)) if dlrm else own["model"].Size(4, rows, (8, 4))
    network = (own["model"].DLRM if dlrm else own["model"].WideDeep)(size)
    torch.save({"state_dict": network.state_dict()}, tmp_path / "mine.pt")
    flags = ["--weights", str(tmp_path / "mine.pt"), "--hash", "hex", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["export_onnx.py", *flags, "--forms", "dyn", "--exporter", "torchscript"])
    assert own["export_onnx"].main() == 0
    file = tmp_path / ("dlrm_dyn.onnx" if dlrm else "wide_deep_dyn.onnx")
    samples = CriteoRows(DATA).batch(range(33)).samples
    answers = {}
    for called, target, split in (("onnx", "onnx", False), ("sdaa", "sdaa", False), ("split", "sdaa", True)):
        with open_engine(target, EngineSpec(file, batch_size=16, shard_tables=split)) as engine:
            features = Features.of(Model.of(engine))
            arrays = features.encoded(samples)
            assert arrays["ids"][:, 0].max() > 2048
            assert engine.inputs[[one.name for one in engine.inputs].index("ids")].dtype == np.int64
            answers[called] = engine([arrays[one.name].astype(one.dtype) for one in engine.inputs])
    with torch.no_grad():
        wanted = network.eval()(torch.from_numpy(arrays["ids"]), torch.from_numpy(arrays["dense"])).numpy()
    np.testing.assert_allclose(answers["onnx"], wanted, rtol=1e-5)
    np.testing.assert_allclose(answers["sdaa"], wanted, atol=2e-3)
    np.testing.assert_array_equal(answers["split"], answers["sdaa"])


@pytest.mark.parametrize("own", ["dlrm", "wide_deep"], indirect=True)
def test_weights_of_other_models_are_rejected(own: dict[str, ModuleType]) -> None:
    with pytest.raises(ModelError, match=r"w\.pt: .*(DLRM|Wide).*missing"):
        own["export_onnx"].size_of({"fc.weight": np.zeros((3, 3))}, Path("w.pt"))
