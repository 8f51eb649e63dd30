"""The rules of the house, read off the source: floors, vendor packages, style limits, and a bare environment."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import ROOT, RunPython

FLOORS = {"engine": 1, "utils": 2, "tecoexec": 3, "model_config": 3, "toolkit": 3.5, "example": 4, "contrib": 4}
"""An import only goes down, or stays in its own package; nothing imports the scripts of the top floor.

``toolkit`` shares the third floor of the design, on a step above: its command runs the other tools, and none needs it.
"""

VENDORS: dict[str, tuple[str, ...]] = {
    "onnxruntime": ("engine/backends/ort.py", "engine/backends/quantize.py"),
    "openvino": ("engine/backends/ov.py",),
    "tensorrt": ("engine/backends/trt.py",),
    "polygraphy": ("engine/backends/trt.py",),
    "torch": (
        "utils/export/torch_export.py",
        "utils/export/torch_operators.py",
        "utils/export/torchvision_models.py",
        "example/**/export_onnx.py",
        "example/**/train.py",
        "example/**/model.py",
        "example/custom_op/*.py",
        "contrib/**/*.py",  # the published guide's scripts use it anywhere
    ),
    "torchvision": ("utils/export/torchvision_models.py",),
    "paddle": ("utils/export/paddle_export.py", "contrib/**/*.py"),
    "paddle2onnx": ("utils/export/paddle_export.py",),
    "mpi4py": ("utils/pipeline/launch/mpi.py",),
    "ray": ("utils/pipeline/launch/ray_launcher.py",),
}
"""Each vendor package and the only files that may import it."""

BLOCKED = (
    "torch",
    "torchvision",
    "paddle",
    "tensorrt",
    "polygraphy",
    "openvino",
    "sklearn",
    "skimage",
    "scipy",
    "rich",
    "jinja2",
)
"""What is not there in a bare environment."""

MAX_LINES, MAX_FUNCTION = 450, 60
COMMAND_LINES = re.compile(r"(__main__|cli|check)\.py$|^utils/pipeline/(answers|console|valid)\.py$|^toolkit/commands/")
"""Files that may print: command lines, besides scripts."""


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = (
        listed.stdout.split("\0") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*.py")]
    )
    return sorted(name for name in names if name.split("/")[0] in FLOORS and (ROOT / name).is_file())


SOURCES = _tracked()
CORE = [name for name in SOURCES if FLOORS[name.split("/")[0]] < 4]


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def imports(name: str) -> Iterator[tuple[int, str]]:
    """Yield line and module of every import of a file, those inside functions too."""
    package = name.split("/")[:-1]
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            yield node.lineno, ".".join([*base, *([node.module] if node.module else [])])
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "__import__"):
            first = node.args[0]
            if isinstance(first, ast.Constant):
                yield node.lineno, str(first.value)


def test_there_is_something_to_check() -> None:
    assert {"engine/base.py", "utils/pipeline/loops.py", "example/classification/digits/example_valid.py"} <= set(
        SOURCES
    )


def test_imports_are_seen() -> None:
    """The two tests below would also pass if this file could not read imports."""
    seen = {(name, module.split(".")[0]) for name in SOURCES for _, module in imports(name)}
    assert {
        ("engine/backends/ort.py", "onnxruntime"),
        ("engine/backends/trt.py", "tensorrt"),
        ("utils/export/torch_export.py", "torch"),
    } <= seen
    assert ("utils/pipeline/loops.py", "engine") in seen


def test_imports_only_go_down() -> None:
    wrong = []
    for name in SOURCES:
        home = name.split("/")[0]
        for line, module in imports(name):
            target = module.split(".")[0]
            if target in FLOORS and target != home and (FLOORS[target] >= FLOORS[home] or FLOORS[target] == 4):
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong


def test_vendor_packages_stay_in_their_files() -> None:
    wrong = []
    for name in SOURCES:
        for line, module in imports(name):
            allowed = VENDORS.get(module.split(".")[0])
            if allowed is not None and not any(Path(ROOT / name) in set(ROOT.glob(pattern)) for pattern in allowed):
                wrong.append(f"{name}:{line} imports {module}")
    assert not wrong


def test_every_utils_package_can_be_extended() -> None:
    packages = [name for name in SOURCES if re.fullmatch(r"utils/(.*/)?__init__\.py", name)]
    line = "__path__ = pkgutil.extend_path(__path__, __name__)"
    assert not [name for name in packages if line not in (ROOT / name).read_text(encoding="utf-8").splitlines()]
    folders = {str(Path(name).parent) for name in SOURCES if name.startswith("utils/")}
    assert folders == {str(Path(name).parent) for name in packages}, "a folder of utils lacks its __init__.py"
    assert not (ROOT / "contrib" / "engine").exists()


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


def test_files_and_functions_are_short() -> None:
    wrong = []
    for name in SOURCES:
        lines = len((ROOT / name).read_text(encoding="utf-8").splitlines())
        if lines > MAX_LINES:
            wrong.append(f"{name} has {lines} lines")
        for node in ast.walk(tree(name)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                length = (node.end_lineno or 0) - node.lineno + 1
                if length > MAX_FUNCTION:
                    wrong.append(f"{name}:{node.lineno} {node.name} has {length} lines")
    assert not wrong


def test_the_median_function_is_short() -> None:
    lengths = sorted(
        (node.end_lineno or 0) - node.lineno + 1
        for name in CORE
        for node in ast.walk(tree(name))
        if isinstance(node, ast.FunctionDef)
    )
    assert lengths[len(lengths) // 2] <= 12


def test_modules_say_what_they_are_for_and_annotate_late() -> None:
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


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def test_every_module_imports_in_a_bare_environment(run_python: RunPython) -> None:
    """Only the files whose business is torch or paddle may need them."""
    own = {
        file
        for vendor in ("torch", "torchvision", "paddle")
        for pattern in VENDORS[vendor]
        for file in ROOT.glob(pattern)
    }
    names = [_module(name) for name in CORE if ROOT / name not in own and not name.endswith("__main__.py")]
    assert len(names) > 30
    done = run_python("-W", "error", "-c", IMPORT_ALL, *names)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


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
