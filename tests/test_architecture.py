"""Architecture rules checked in the source: layers, vendor packages, style limits, and a bare environment."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from source_imports import (
    circles,
    forget_trees,  # noqa: F401 - a fixture
    graph_of,
    imports,
    module_of,
    python_files,
    table,
    tree,
    typing_only,
    written_imports,
)
from support import ROOT, RunPython

import engine

FLOORS = {
    "tecoinfer_modelzoo": 0,
    "engine": 1,
    "torch_sdaa": 2,
    "utils": 2,
    "tecoexec": 3,
    "model_config": 3,
    "transplant": 3,
    "serve": 3,
    "toolkit": 4,
    "example": 5,
    "contrib": 5,
}
"""Imports go to lower layers or stay in the package; nothing imports the scripts of the top layer."""

VENDORS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("engine/backends/ort.py", "engine/backends/quantize.py"),
    "openvino": ("engine/backends/ov.py",),
    "tensorrt": ("engine/backends/trt.py",),
    "tvm": (
        *("engine/backends/tvm_runtime.py", "engine/backends/tvm_schedule.py"),
        *("engine/backends/tvm_recurrent.py", "engine/backends/tvm_tune.py"),
    ),
    "polygraphy": ("engine/backends/trt.py",),
    "torch": (
        "torch_sdaa/**/*.py",
        "utils/export/torch_engine.py",
        "utils/export/torch_export.py",
        "utils/export/torch_operators.py",
        "utils/export/networks/**/*.py",
        "utils/export/weight_files.py",
        "utils/export/scripts/*.py",
        "toolkit/training/operators/recorder.py",  # runs a training on the CPU, in a process of its own
        "toolkit/training/operators/device.py",  # asks the device, in a process of its own
        "toolkit/training/operators/__main__.py",
        "toolkit/training/dump/isolated.py",  # repeats operators of a dump
        "example/**/eval_pytorch.py",
        "example/**/export_onnx.py",
        "example/**/train.py",
        "example/**/model.py",
        "example/**/weights.py",
        "example/custom_op/*.py",
        "example/training/**/*.py",
        "contrib/**/*.py",  # the published guide's scripts use it anywhere
    ),
    "torch_sdaa": (
        "torch_sdaa/**/*.py",
        "toolkit/training/operators/*.py",
        "toolkit/training/dump/isolated.py",
        "example/training/**/*.py",
    ),  # inference has no business with it
    "torchvision": (
        "utils/export/networks/torchvision_models.py",
        "utils/export/networks/torchvision_detectors.py",
        "example/training/imagenet/**/*.py",
        "example/training/compile/main.py",
    ),
    "paddle": ("utils/export/paddle_export.py", "contrib/**/*.py"),
    "libcst": ("transplant/*.py",),
    "paddle2onnx": ("utils/export/paddle_export.py",),
    "mlperf_loadgen": ("tecoexec/load/loadgen.py",),
    "mpi4py": ("utils/pipeline/launch/mpi.py",),
    "fastapi": ("serve/http/app.py", "serve/http/bodies.py", "serve/http/forms.py", "serve/http/openapi.py"),
    "starlette": ("serve/http/app.py", "serve/http/forms.py"),
    "uvicorn": ("serve/server.py",),
    "grpc": ("serve/grpc_server.py",),
    "grpc_tools": ("serve/protocol/compile.py",),
    "prometheus_client": ("serve/metrics.py",),
    "ray": ("utils/pipeline/launch/ray_launcher.py", "serve/batching/ray_workers.py"),
    "cv2": ("example/face/centerface/eval_opencv.py",),
    "gymnasium": ("utils/environments.py",),
    "soundfile": ("utils/preprocess/audio/reading.py",),
    "rdkit": ("utils/datasets/graphs/molecules.py",),
    "soxr": ("utils/preprocess/audio/resampling.py",),
    "av": ("utils/video/packages.py",),
}
"""Each vendor package and the only files that may import it."""

SERVER = ("fastapi", "uvicorn", "grpc")
"""Packages that whole modules of serve/ are about; those are imported by the running server only."""

BLOCKED = (
    "torch",
    "torch_sdaa",
    "torchvision",
    "paddle",
    "tensorrt",
    "polygraphy",
    "openvino",
    "tvm",
    "sklearn",
    "skimage",
    "scipy",
    "soundfile",
    "soxr",
    "av",
    "rdkit",
    "gymnasium",
    "mlperf_loadgen",
    "fastapi",
    "starlette",
    "uvicorn",
    "grpc",
    "prometheus_client",
    "pygame",
    "rich",
    "jinja2",
    "libcst",
)
"""Packages missing in a bare environment."""

COMMAND_LINES = re.compile(
    r"(__main__|cli|check)\.py$|^utils/pipeline/(answers|valid|report/console)\.py$|^toolkit/commands/|^utils/export/scripts/"
)
"""Files that may print: command lines, besides scripts."""


SOURCES = python_files(*FLOORS)
CORE = [name for name in SOURCES if FLOORS[name.split("/")[0]] < 5]


def test_source_files_are_found() -> None:
    assert {"engine/base.py", "utils/pipeline/run/loops.py", "example/classification/digits/example_valid.py"} <= set(
        SOURCES
    )


def test_imports_are_parsed() -> None:
    """Guards the two tests below, which would pass without any imports."""
    seen = {(name, module.split(".")[0]) for name in SOURCES for _, module, _ in imports(name)}
    assert {
        ("engine/backends/ort.py", "onnxruntime"),
        ("engine/backends/trt.py", "tensorrt"),
        ("utils/export/torch_export.py", "torch"),
    } <= seen
    assert ("utils/pipeline/run/loops.py", "engine") in seen


def test_imports_go_to_lower_layers() -> None:
    wrong = []
    for name in SOURCES:
        home = name.split("/")[0]
        for line, module, _ in imports(name):
            target = module.split(".")[0]
            if target in FLOORS and target != home and (FLOORS[target] >= FLOORS[home] or FLOORS[target] == 5):
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong


def test_vendor_packages_stay_in_their_files() -> None:
    allowed = {vendor: {path for one in patterns for path in ROOT.glob(one)} for vendor, patterns in VENDORS.items()}
    wrong = []
    for name in SOURCES:
        for line, module, _ in imports(name):
            if ROOT / name not in allowed.get(module.split(".")[0], {ROOT / name}):
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong


def test_the_training_side_imports_torch_and_engine_only() -> None:
    inside = [name for name in SOURCES if name.startswith("torch_sdaa/")]
    found = {module.split(".")[0] for name in inside for _, module, _ in imports(name)} - set(sys.stdlib_module_names)
    of_torch = {"torch", "typing_extensions"}  # PyTorch needs and installs the second
    assert found <= of_torch | {"torch_sdaa", "engine", "tecoinfer_modelzoo", "numpy", "onnx"}
    with_onnx = {name for name in inside for _, module, _ in imports(name) if module.split(".")[0] == "onnx"}
    assert all(name.startswith("torch_sdaa/dynamo/") for name in with_onnx)  # graphs that it writes
    assert {"torch", "engine"} <= found


def test_every_utils_package_can_be_extended() -> None:
    packages = [name for name in SOURCES if re.fullmatch(r"utils/(.*/)?__init__\.py", name)]
    line = "__path__ = pkgutil.extend_path(__path__, __name__)"
    assert not [name for name in packages if line not in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    folders = {str(Path(name).parent) for name in SOURCES if name.startswith("utils/")}
    assert folders == {str(Path(name).parent) for name in packages}, "a folder of utils lacks its __init__.py"
    assert [name for name in SOURCES if name.startswith("contrib/engine/")] == ["contrib/engine/__init__.py"]


def test_only_command_lines_print() -> None:
    wrong = [
        f"{name}:{node.lineno}"
        for name in CORE
        if not COMMAND_LINES.search(name)
        for node in ast.walk(tree(name))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not wrong


def test_no_error_is_swallowed() -> None:
    wrong = []
    for name in SOURCES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ExceptHandler):
                silent = len(node.body) == 1 and isinstance(node.body[0], ast.Pass)
                if node.type is None or silent:
                    wrong.append(f"{name}:{node.lineno}")
    assert not wrong


def test_no_dangerous_calls() -> None:
    wrong = []
    for name in SOURCES:
        for node in ast.walk(tree(name)):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            shell = any(
                k.arg == "shell" and not (isinstance(k.value, ast.Constant) and not k.value.value)
                for k in node.keywords
            )
            if called in ("eval", "exec", "os.system", "yaml.load", "pickle.load", "pickle.loads") or shell:
                wrong.append(f"{name}:{node.lineno} calls {called}")
    assert not wrong


MOST_MODULES = 25
"""Maximum modules of a folder."""


def test_folders_have_few_modules() -> None:
    counts = Counter(str(Path(name).parent) for name in python_files(*FLOORS, "benchmarks", "tests"))
    assert {folder: count for folder, count in counts.items() if count > MOST_MODULES} == {}


def test_modules_have_docstrings_and_late_annotations() -> None:
    wrong = []
    for name in CORE:
        if name.endswith("__init__.py"):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if not ast.get_docstring(tree(name)):
            wrong.append(f"{name} has no docstring")
        if (
            re.search(r"^def |^class |^    def ", text, re.MULTILINE)
            and "from __future__ import annotations" not in text
        ):
            wrong.append(f"{name} lacks 'from __future__ import annotations'")
    assert not wrong


# --------------------------------------------------------------------------------------------------- faces and circles

FACES = {module_of(name): name for name in SOURCES if name.startswith("engine/") and table(name, "_HOMES")}
"""What outsiders import of ``engine``: packages that say in ``_HOMES`` where each name of theirs is."""

HISTORICAL = re.compile(r"engine\.(base|tecoinfer_\w+)")
"""Imports of existing scripts, which the core does not use."""

PUBLIC = frozenset({"engine.measures", "engine.signature", "engine.spec"})
"""Modules of ``engine`` that others import as well."""

OTHERS = python_files(
    *("torch_sdaa", "utils", "tecoexec", "model_config", "serve", "toolkit", "example", "contrib", "benchmarks")
)
TESTS = [name for name in python_files("tests") if not name.startswith("tests/engine/")]


def _behind_faces(name: str) -> list[str]:
    """Return the imports of a file that go past the faces of ``engine``, with their lines."""
    wrong = []
    for line, module, imported in (*imports(name), *written_imports(name)):
        if module.split(".")[0] != "engine":
            continue
        inner = f"{module}.{imported}"
        past = module not in FACES and module not in PUBLIC and not HISTORICAL.fullmatch(module)
        if past or (inner not in FACES and inner not in PUBLIC and f"{inner.replace('.', '/')}.py" in SOURCES):
            wrong.append(f"{name}:{line} imports {inner.removesuffix('.')}")
    return wrong


def test_only_public_packages_of_engine_are_imported() -> None:
    rooms = {"backends", "batching", "host", "onnx", "passes", "sdaa", "training"}
    assert set(FACES) == {"engine", *(f"engine.{room}" for room in rooms)}
    assert not [wrong for name in OTHERS for wrong in _behind_faces(name)]


def test_public_api_of_engine_is_small() -> None:
    names = [name for names in table("engine/__init__.py", "_HOMES").values() for name in names]
    assert len(names) <= 45


def test_deprecated_names_of_engine_resolve_but_are_not_listed() -> None:
    former = [name for names in table("engine/__init__.py", "_FORMER").values() for name in names]
    assert {"HostSession", "OpCall", "differences", "open_training_dump", "run_sharded"} <= set(former)
    assert all(hasattr(engine, name) for name in former)
    assert not set(former) & set(engine.__all__)


def test_the_core_imports_nothing_historical() -> None:
    core = [name for name in OTHERS if name.split("/")[0] != "contrib"]
    wrong = [f"{name}:{line}" for name in core for line, module, _ in imports(name) if HISTORICAL.fullmatch(module)]
    assert not wrong


def test_tests_import_public_names_from_public_packages() -> None:
    """Tests of ``engine`` itself look inside; others only for what no face shows."""
    shown = {name for face in FACES.values() for names in table(face, "_HOMES").values() for name in names}
    wrong = [
        f"{name}:{line} imports {imported} from {module}"
        for name in TESTS
        for line, module, imported in imports(name)
        if module.startswith("engine.") and module not in FACES and imported in shown
    ]
    assert not wrong


def test_engine_does_not_import_its_public_packages() -> None:
    """Modules of ``engine`` import each other directly, not from the public package."""
    inside = [name for name in SOURCES if name.startswith("engine/")]
    graph = graph_of(inside)
    assert not [
        f"{module}:{line} imports {face}" for module in graph for face, line in graph[module].items() if face in FACES
    ]


@pytest.mark.parametrize("face", sorted(FACES))
def test_public_packages_are_consistent(face: str, run_python: RunPython) -> None:
    """Its table, type imports and modules agree, and importing it imports nothing else."""
    homes = {home: set(names) for home, names in table(FACES[face], "_HOMES").items()}
    assert typing_only(FACES[face]) == homes
    names = sorted(name for shown in homes.values() for name in shown)
    assert len(names) == len(set(names))
    done = run_python("-W", "error", "-c", FACE, face, *names)
    assert (done.returncode, done.stderr) == (0, "")
    parts = ("distribution", "home", "interrupts", "own_packages", "streams", "telemetry")
    below = {"tecoinfer_modelzoo", *(f"tecoinfer_modelzoo.{part}" for part in parts)}
    assert set(done.stdout.split()) == {"engine", "tecoinfer_modelzoo.lazy", face} | below


FACE = """
import sys
before = set(sys.modules)
__import__(sys.argv[1])
new = set(sys.modules) - before - set(sys.stdlib_module_names)
print(*(name for name in new if name.split(".")[0] not in sys.stdlib_module_names))
face = sys.modules[sys.argv[1]]
for name in sys.argv[2:]:
    getattr(face, name)
    assert name in dir(face)
assert set(getattr(face, "__all__", ())) <= set(sys.argv[2:])
"""
"""Print the modules that importing a package imports, then access every public name."""


def test_no_import_cycles() -> None:
    """Imports inside functions and for types count: where two modules need each other, one of them has two subjects."""
    found = circles(graph_of(python_files(*(name for name, floor in FLOORS.items() if floor < 5), "benchmarks")))
    assert found == []


def test_import_cycles_are_detected() -> None:
    graph = {"a": {"b": 1}, "b": {"c": 1}, "c": {"a": 1, "d": 1}, "d": {"e": 1}, "e": {"d": 1}, "f": {"a": 1}}
    assert circles(graph) == [["a", "b", "c"], ["d", "e"]]
    seen = graph_of(["engine/__init__.py", "engine/base.py", "engine/agreement.py", "engine/passes/runner.py"])
    assert {"engine.base", "engine.agreement"} <= set(seen["engine"])
    assert "engine.agreement" in seen["engine.base"]  # for types only
    assert "engine.base" in seen["engine.passes.runner"]


# ------------------------------------------------------------------------------------------------- a bare environment

BARE = f"""
import sys
for name in {BLOCKED!r}:
    sys.modules[name] = None
"""

IMPORT_ALL = (
    BARE
    + """
import importlib
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {error}")
print("\\n".join(failed))
"""
)


def test_every_module_imports_in_a_bare_environment(run_python: RunPython) -> None:
    """Only files for torch or paddle may require them."""
    own = {
        file
        for vendor in ("torch", "torch_sdaa", "torchvision", "paddle", "libcst", *SERVER)
        for pattern in VENDORS[vendor]
        for file in ROOT.glob(pattern)
    } | {ROOT / "toolkit/commands/transplant.py"}
    names = [module_of(name) for name in CORE if ROOT / name not in own and not name.endswith("__main__.py")]
    assert len(names) > 30
    done = run_python("-W", "error", "-c", IMPORT_ALL, *names)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


TRAINING = """
import sys
import engine, engine.onnx, engine.passes, engine.registry, engine.sdaa, model_config, tecoexec, toolkit.cli, utils
import utils.datasets, utils.metrics, utils.pipeline.cli, utils.postprocess, utils.preprocess, utils.tasks
assert not {"torch", "torch_sdaa"} & set(sys.modules)
"""


def test_importing_the_rest_imports_neither_torch_nor_the_training_side(run_python: RunPython) -> None:
    """Both are importable; another test covers missing ones."""
    pytest.importorskip("torch")
    done = run_python("-c", TRAINING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


INFERENCE = (
    BARE
    + """
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
)


@pytest.mark.parametrize(
    ("target", "script"),
    [("onnx", "example_valid.py"), ("sdaa", "example_multi_batch.py"), ("null", "example_single_batch.py")],
)
def test_inference_needs_neither_torch_nor_paddle(
    target: str, script: str, digits: Path, run_python: RunPython
) -> None:
    done = run_python("-c", INFERENCE, digits / script, "--target", target)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_anything_below_the_top_starts_no_thread_and_prints_nothing(run_python: RunPython) -> None:
    code = (
        "import engine, engine.registry, utils.pipeline.cli, utils.datasets, utils.metrics, threading\n"
        "assert threading.active_count() == 1"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
