"""Rules for scripts that run a model: they are short and use the zoo's engines and evaluation loops."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from model_config.structure.flags import with_imports
from model_config.structure.source import Broken, Folder, SourceFile
from model_config.structure.syntax import aliases, at, called, imported

VENDORS = (
    "MNN",
    "ncnn",
    "onnxruntime",
    "openvino",
    "polygraphy",
    "pycuda",
    "tensorrt",
    "tflite_runtime",
    "torch_tensorrt",
)
"""Packages that run a model without the zoo's engines."""

DOORS = ("engine", "utils.pipeline")
"""Packages through which an example script may run a model."""

HISTORICAL = ("engine.tecoinfer_pytorch", "engine.tecoinfer_paddle")
"""Interfaces for scripts in the historical style, which have their own loop and timing."""

MAX_CODE = 120
"""Maximum lines of code of an example script that uses the zoo's loops."""

MAX_HISTORICAL_CODE = 300
"""Maximum lines of code in the historical style, with explicit flags, loop and timing."""

CLOCKS = ("time.monotonic", "time.perf_counter", "time.process_time", "time.time", "timeit.default_timer")


def _imports(source: SourceFile, *packages: str) -> list[str]:
    names = sorted(set(aliases(source).values()))
    return [name for name in names if any(name == package or name.startswith(f"{package}.") for package in packages)]


def _historical(source: SourceFile) -> bool:
    """Return whether a contributed script has the historical style, which DESIGN.md supports."""
    return source.name.startswith("contrib/") and bool(_imports(source, *HISTORICAL))


def check_engine(folder: Folder) -> Iterator[Broken]:
    """Example scripts run their model through ``engine`` or ``utils.pipeline``, and through nothing else."""
    for _, source in folder.examples:
        modules = with_imports(source, folder)
        for module in modules:
            for node in module.nodes:
                for name in imported(node):
                    if name.split(".")[0] in VENDORS:
                        fix = "let utils.pipeline.cli run a task, or open a TecoInferEngine(target=...)"
                        yield module.broken(at(node), f"imports {name} instead of the zoo's engines", fix)
        if not source.syntax_error and source.data and not any(_imports(module, *DOORS) for module in modules):
            fix = "let utils.pipeline.cli run a task, or open a TecoInferEngine"
            yield source.broken(0, "imports neither engine nor utils.pipeline: it cannot run the model", fix)


def check_length(folder: Folder) -> Iterator[Broken]:
    """Example scripts are short: a long one is usually a copy of a loop that the zoo has."""
    for _, source in folder.examples:
        lines = len({line for node in source.nodes for line in _lines(node)})
        limit = MAX_HISTORICAL_CODE if _historical(source) else MAX_CODE
        if lines > limit:
            fix = "use utils.pipeline, and move the rest to modules of contrib/utils"
            yield source.broken(0, f"has {lines} lines of code, more than {limit}", fix)


def _lines(node: ast.AST) -> range:
    """Return the lines of a simple statement, or the first line of a compound statement."""
    if not isinstance(node, ast.stmt):
        return range(0)
    end = node.lineno if hasattr(node, "body") else (node.end_lineno or node.lineno)
    return range(node.lineno, end + 1)


def check_loop(folder: Folder) -> Iterator[Broken]:
    """No example script times its own loop over the batches: all use the loop of the pipeline."""
    for step, source in folder.examples:
        if _historical(source):
            continue
        names = aliases(source)
        for loop in (node for node in source.nodes if isinstance(node, (ast.For, ast.While))):
            clocks = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and called(node, names) in CLOCKS]
            if clocks:
                yield source.broken(loop.lineno, "a loop with its own timing", f"use utils.pipeline.cli.{step.name}")
                break
