from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from support import RunPython, SaveOnnx

from engine import (
    Engine,
    EngineError,
    EngineSpec,
    ModelError,
    TargetError,
    available_targets,
    default_dtype,
    open_engine,
    register,
    registry,
)
from engine.backends.null import NullEngine

RELU = "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"

VENDOR = """
from engine.backends.null import NullEngine

class Vendor(NullEngine):
    def describe(self):
        return "the vendor's own runtime"

    def infer(self, inputs):
        return [array + 42 for array in super().infer(inputs)]

not_an_engine = 3
"""


@pytest.fixture
def vendor(tmp_path: Path) -> Path:
    """Return a folder for ``sys.path`` with a third party's package, installed as pip would leave it."""
    site = tmp_path / "site"
    info = site / "teco_vendor-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teco-vendor\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[tecoinfer.engines]\n"
        "sdaa = vendor_engine:Vendor\n"
        "card9 = vendor_engine:Vendor\n"
        "gone = no_such_package:Engine\n"
        "typo = vendor_engine:Vendr\n"
        "number = vendor_engine:not_an_engine\n"
        "crash = vendor_crash:Engine\n"
    )
    (site / "vendor_engine.py").write_text(VENDOR)
    (site / "vendor_crash.py").write_text("raise OSError('libvendor.so: cannot open\\nshared object file')\n")
    return site


def test_unknown_target_text() -> None:
    with pytest.raises(TargetError) as caught:
        open_engine("sda", EngineSpec(ckpt=Path("m.onnx")))
    text = str(caught.value)
    assert text.startswith("unknown target 'sda'; did you mean 'sdaa'? available: cpu, ")
    if "cuda" not in available_targets() and "tvm" in available_targets():
        assert text == (
            "unknown target 'sda'; did you mean 'sdaa'? available: cpu, null, onnx, sdaa, tvm "
            '(cuda: pip install -c constraints.txt -e ".[tensorrt]")'
        )


@pytest.mark.parametrize("target", ["", "tensorflow", "SDAA!", "../x"])
def test_unknown_target_far_from_any(target: str) -> None:
    with pytest.raises(TargetError, match="available: cpu"):
        open_engine(target, EngineSpec(ckpt=Path("m.onnx")))


def test_a_near_name_that_is_not_installed_is_still_suggested() -> None:
    with pytest.raises(TargetError, match="did you mean 'cuda'"):
        open_engine("cuda0", EngineSpec(ckpt=Path("m.onnx")))


def test_default_precisions() -> None:
    assert (default_dtype("onnx"), default_dtype("sdaa"), default_dtype("null")) == ("float32", "float16", "float32")
    with pytest.raises(TargetError):
        default_dtype("sda")


@pytest.mark.parametrize("name", ["cpu", "cuda", "null", "onnx", "sdaa", "tvm"])
def test_the_table_leads_to_engines(name: str) -> None:
    """Also for a target whose packages are missing: opening it raises the error."""
    builtin = registry._BUILTIN[name]
    module, _, attribute = builtin.where.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    assert issubclass(found, Engine)
    assert bool(builtin.needs) == bool(builtin.extra)


def test_register_comes_first(monkeypatch: pytest.MonkeyPatch, save_onnx: SaveOnnx) -> None:
    class Mine(NullEngine):
        default_dtype = "float16"

    monkeypatch.setattr(registry, "_registered", {})
    register("onnx", Mine)
    register("mine", Mine)
    assert "mine" in available_targets()
    assert registry.provider("onnx") == "registered"
    assert registry.provider("sdaa") == "built-in"
    assert default_dtype("onnx") == "float16"
    with open_engine("mine", EngineSpec(ckpt=save_onnx(RELU))) as engine:
        assert isinstance(engine, Mine)


OPEN = """
import json, sys
import numpy as np
from pathlib import Path
from engine import EngineSpec, TecoInferError, available_targets, open_engine, registry
answer = {"available": available_targets(), "provider": registry.provider("sdaa")}
for target in sys.argv[2:]:
    try:
        engine = open_engine(target, EngineSpec(ckpt=Path(sys.argv[1])))
        answer[target] = [engine.describe(), engine(np.zeros((1, 4), np.float32)).tolist()]
    except TecoInferError as error:
        answer[target] = str(error)
print(json.dumps(answer))
"""


def test_third_party_engines(run_python: RunPython, vendor: Path, save_onnx: SaveOnnx, root: Path) -> None:
    targets = ["sdaa", "card9", "gone", "typo", "number", "crash", "card8"]
    done = run_python("-c", OPEN, save_onnx(RELU), *targets, path=[root, vendor])
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {"card9", "cpu", "null", "onnx", "sdaa"} <= set(answer["available"])
    assert answer["provider"] == "teco-vendor 1.2"
    assert answer["sdaa"] == answer["card9"] == ["the vendor's own runtime", [[42.0] * 4]]
    assert "target 'sdaa' is served by teco-vendor, not by the built-in engine" in done.stderr
    assert "'card9' is served" not in done.stderr
    assert answer["gone"].startswith(
        "target 'gone' is registered by teco-vendor (no_such_package:Engine) but cannot be"
    )
    assert "Vendr" in answer["typo"]
    assert "which is not an engine.Engine subclass" in answer["number"]
    assert answer["crash"].endswith("cannot be loaded: OSError: libvendor.so: cannot open shared object file")
    assert "did you mean 'card9'?" in answer["card8"]


def test_the_command_line_shows_the_provider(run_python: RunPython, vendor: Path, root: Path, digits: Path) -> None:
    done = run_python(
        digits / "example_single_batch.py", "--target", "sdaa", "--json", vendor / "r.json", path=[root, vendor]
    )
    assert done.stdout.startswith(
        "target sdaa (served by teco-vendor 1.2, not the zoo's own): the vendor's own runtime\n"
    ), done.stderr
    assert json.loads((vendor / "r.json").read_text())["provider"] == "teco-vendor 1.2"


IMPORTED = """
import sys
{code}
print(*sorted(name for name in {heavy!r} if name in sys.modules))
"""


@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import engine", ["onnx", "onnxruntime", "torch", "google.protobuf", "yaml", "concurrent.futures"]),
        ("import engine.tecoinfer_pytorch, engine.tecoinfer_paddle", ["onnx", "onnxruntime", "torch", "paddle"]),
        ("import utils.pipeline, utils.pipeline.cli", ["onnx", "onnxruntime", "torch", "PIL", "tqdm"]),
        (
            "from pathlib import Path\nfrom engine import *\nopen_engine('null', EngineSpec(Path(sys.argv[1])))",
            ["onnxruntime", "torch"],
        ),
        (
            "from pathlib import Path\nfrom engine import *\nopen_engine('onnx', EngineSpec(Path(sys.argv[1])))",
            ["onnx", "torch", "onnx_ir", "onnxscript"],
        ),
        (
            "from pathlib import Path\nfrom engine import *\nopen_engine('sdaa', EngineSpec(Path(sys.argv[1])))",
            ["torch", "onnx_ir", "onnxscript"],
        ),
    ],
)
def test_imports_are_lazy(code: str, heavy: list[str], run_python: RunPython, save_onnx: SaveOnnx) -> None:
    done = run_python("-c", IMPORTED.format(code=code, heavy=heavy), save_onnx(RELU))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


def test_all_targets_agree(save_onnx: SaveOnnx) -> None:
    x = np.ones((3, 4), np.float32)
    for target in ("onnx", "cpu", "null", "sdaa"):
        with open_engine(target, EngineSpec(ckpt=save_onnx(RELU), dtype="float32")) as engine:
            y = engine(x)
        assert (type(y), y.shape, y.dtype) == (np.ndarray, (3, 4), np.float32)


def test_an_unexpected_error_names_the_model(monkeypatch: pytest.MonkeyPatch, save_onnx: SaveOnnx) -> None:
    def fails(*_: object) -> None:
        raise KeyError("wires")

    monkeypatch.setattr(NullEngine, "__init__", fails)
    path = save_onnx(RELU)
    with pytest.raises(ModelError) as error:
        open_engine("null", EngineSpec(ckpt=path))
    assert str(error.value).startswith(f"{path}: target null cannot open it because of an unexpected error (KeyError:")
    path.write_bytes(path.read_bytes().replace(b"Relu", b"Relo"))
    with pytest.raises(ModelError, match=r"ONNX Runtime .*cannot load .*Relo"):
        open_engine("null", EngineSpec(ckpt=path))


def test_out_of_memory_names_the_model(monkeypatch: pytest.MonkeyPatch, save_onnx: SaveOnnx) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("Unable to allocate 4.00 EiB")

    monkeypatch.setattr(NullEngine, "__init__", fails)
    path = save_onnx(RELU)
    with pytest.raises(ModelError) as error:
        open_engine("null", EngineSpec(ckpt=path))
    assert str(error.value) == (
        f"{path}: target null has not enough memory to open it (MemoryError: Unable to allocate 4.00 EiB); "
        "free memory, or export the model for smaller inputs"
    )


def test_vendor_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, save_onnx: SaveOnnx) -> None:
    class Vendor(NullEngine):
        def __init__(self, spec: EngineSpec) -> None:
            raise KeyError("wires")

    monkeypatch.setitem(registry._registered, "vendor", Vendor)
    with pytest.raises(EngineError, match=r"target 'vendor' .*KeyError: 'wires'"):
        open_engine("vendor", EngineSpec(ckpt=save_onnx(RELU)))


@pytest.mark.parametrize("name", ["inputs", "outputs", "streams", "metadata", "timeline"])
def test_attributes_of_a_foreign_engine_may_fail_at_opening(
    name: str, monkeypatch: pytest.MonkeyPatch, save_onnx: SaveOnnx
) -> None:
    class Failing(NullEngine):
        def __getattribute__(self, asked: str) -> object:
            if asked == name and "ready" in object.__getattribute__(self, "__dict__"):
                raise SystemExit(0)
            return super().__getattribute__(asked)

        def __init__(self, spec: EngineSpec) -> None:
            super().__init__(spec)
            self.ready = True

    monkeypatch.setitem(registry._registered, "failing", Failing)
    with pytest.raises(EngineError, match="failing"):
        open_engine("failing", EngineSpec(save_onnx(RELU)))
