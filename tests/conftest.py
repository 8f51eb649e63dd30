from __future__ import annotations

import functools
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, settings
from support import DIGITS, ROOT, RunPython, SaveOnnx

from engine.historical.declared import declare_shapes
from tecoinfer_modelzoo.cache import cache_folder
from utils.fetch import read_contrib

VARIABLES = (
    "MAX_ENGINE_NUMS",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "RAY_ADDRESS",
    "SDAA_VISIBLE_DEVICES",
    "TECO_MEMORY_LIMIT",
    "TECO_TIME_LIMIT",
    "TECO_INFER_PIPELINES_MAX_STEPS",
    "TECO_INFER_PIPELINES_WARMUP_STEPS",
    "TECO_SIM_CARD",
    "TECO_SIM_CARDS",
    "TECO_SIM_FAULTS",
    "TECO_SIM_PACED",
    "TORCH_SDAA_OP_FAULTS",
    "TORCH_SDAA_RANDOM",
    "TORCH_SDAA_STRICT",
)


PACKAGES = os.environ.get("TECO_FETCH_DIR") or str(Path.home() / ".cache" / "tecoinfer" / "fetch")
"""Cache of fetched packages, shared by all test runs."""

EXTENSION = cache_folder("torch_sdaa")
"""Cache of torch_sdaa's compiled code (half a minute), shared by all test runs."""

LONGER = 20
"""Factor of examples of property tests in the profile ``long``."""


def pytest_configure() -> None:
    """Set the profile, and reset signals that shells ignore in background jobs.

    Otherwise the commands that tests stop with Ctrl-C would inherit it.
    """
    choose_profile(os.environ.get("HYPOTHESIS_PROFILE") or "default")
    # As torch_sdaa does, which many tests import too late: threads of PyTorch and NumPy that wait for others must not
    # take a core from the other worker and from the commands that tests start, which inherit this.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude what is imported here from full collections of garbage, each of which would take a third of a second."""
    before = gc.get_threshold()
    gc.set_threshold(before[0], before[1], 1_000_000)
    try:
        return (yield)
    finally:
        gc.set_threshold(*before)
        gc.freeze()


def choose_profile(name: str) -> None:
    """Set the number of examples of property tests: ``default``, or twenty times as many (``long``).

    No example has a deadline under either, as the machine may be busy. A profile's number of examples holds only for
    tests that name none, and most do; so ``long`` multiplies theirs.
    """
    if name not in ("default", "long"):
        raise pytest.UsageError(f"HYPOTHESIS_PROFILE={name} is not known; use default or long")
    usual, plain = settings(), settings.__init__  # of CI there, which tries the same examples every time
    examples = usual.max_examples * (LONGER if name == "long" else 1)
    slow = [HealthCheck.too_slow]
    settings.register_profile("zoo", usual, max_examples=examples, deadline=None, suppress_health_check=slow)
    settings.load_profile("zoo")
    if name == "default":
        return

    @functools.wraps(plain)
    def stretched(self: settings, parent: settings | None = None, **given: Any) -> None:
        if isinstance(given.get("max_examples"), int):
            given["max_examples"] *= LONGER
        plain(self, parent, **given)

    settings.__init__ = stretched  # type: ignore[method-assign]


@pytest.fixture(scope="session", autouse=True)
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Reuse torch_sdaa's compiled code in the tests' cache."""
    cache = tmp_path_factory.getbasetemp() / "cache"
    cache.mkdir(exist_ok=True)
    if EXTENSION is not None and not (cache / EXTENSION.name).exists():
        (cache / EXTENSION.name).symlink_to(EXTENSION)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # Engines of the tests must not show in the developer's own teco-smi.
    monkeypatch.setenv("TECO_SMI_DIR", str(tmp_path_factory.getbasetemp() / "smi"))
    monkeypatch.setenv("TECO_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    # What was downloaded once stays, whatever tests do to the cache.
    monkeypatch.setenv("TECO_FETCH_DIR", PACKAGES)


@pytest.fixture(autouse=True)
def _clean_shapes() -> None:
    """Reset the image size set by engines of earlier tests."""
    declare_shapes(None)


@pytest.fixture(autouse=True)
def _clean_path() -> Iterator[None]:
    """Remove a test's ``contrib/`` from the path, with the modules loaded from it."""
    before, known = list(sys.path), set(sys.modules)
    yield
    read_contrib(None)
    if sys.path == before:
        return
    added = [folder for folder in sys.path if folder not in before]
    sys.path[:] = before
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "utils":
            continue
        if name not in known and (module.__file__ or "").startswith(tuple(added)):
            del sys.modules[name]
        elif hasattr(module, "__path__"):
            module.__path__ = [place for place in module.__path__ if not place.startswith(tuple(added))]


@pytest.fixture
def root() -> Path:
    return ROOT


@pytest.fixture
def digits() -> Path:
    return DIGITS


@pytest.fixture
def save_onnx(tmp_path: Path) -> SaveOnnx:
    """Return a function that writes a model, or one in ONNX's text form (opset 17, IR 8 unless given), to a file."""

    def save(model: onnx.ModelProto | str, name: str = "model.onnx") -> Path:
        if isinstance(model, str):
            header = "" if model.lstrip().startswith("<") else '<ir_version: 8, opset_import: ["" : 17]>\n'
            model = onnx.parser.parse_model(header + model)
        onnx.save(model, str(tmp_path / name))
        return tmp_path / name

    return save


@pytest.fixture
def run_python() -> RunPython:
    """Return a function that runs a new interpreter and returns its output; keywords are environment variables.

    ``path`` becomes ``PYTHONPATH`` (the root of the zoo unless given). After ``limit`` seconds it is ended.
    """

    def run(
        *args: object, cwd: Path = ROOT, path: Sequence[Path] = (ROOT,), limit: float = 120, **env: str
    ) -> subprocess.CompletedProcess[str]:
        inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        settings = {**inherited, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1", **env}
        command = [sys.executable, *map(str, args)]
        return subprocess.run(
            command, cwd=cwd, env=settings, capture_output=True, text=True, timeout=limit, check=False
        )

    return run
