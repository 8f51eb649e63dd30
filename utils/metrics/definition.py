"""A metric as JSON, so that another process can recreate it: its class by name, and its arguments."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from engine import ConfigError, DataError, TecoInferError
from tecoinfer_modelzoo.text import typed_reason
from utils.metrics.arguments import plain_arguments
from utils.metrics.base import Metric

_loading = threading.Lock()
_scripts: dict[Path, tuple[int, ModuleType]] = {}


def metric_to_json(metric: Metric) -> dict[str, Any]:
    """Return the JSON from which :func:`metric_from_json` recreates the metric, without its records.

    Returns:
        ``{"class": "utils.metrics.classification:TopK", "options": {"k": 1}}``. For a class of a script, or of a module
        next to one, the path of the file replaces the module's name. Options are the arguments, including defaults.

    Raises:
        ConfigError: the class is not at the top level of a file, or an argument has no name or is not a JSON value.
    """
    cls = type(metric)
    if "<locals>" in cls.__qualname__:
        raise ConfigError(
            f"metric {cls.__qualname__} is defined inside a function, where other processes cannot find it; define it "
            "at the top level of a file"
        )
    return {"class": f"{_home(cls)}:{cls.__qualname__}", "options": plain_arguments(type(metric), *metric._arguments)}


def metric_from_json(data: Any, root: Path | None) -> Metric:
    """Create the empty metric of a result of :func:`metric_to_json`.

    Its module is imported, also from ``contrib/utils`` below ``root``; a script is run as a module, not as the main
    program.

    Args:
        data: the definition.
        root: the repository, which must contain the script; ``None``: only modules that can be imported by name.

    Raises:
        DataError: the definition is invalid, or its class cannot be loaded or is not a :class:`Metric`.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("class"), str):
        raise DataError(f"{data!r} is not the definition of a metric; write the result again with this version")
    where, _, name = data["class"].rpartition(":")
    found: Any = _module(where, root) if where and name else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type) or not issubclass(found, Metric):
        raise DataError(f"metric {data['class']} is not a class of metrics (utils.metrics.Metric); check its name")
    try:
        return found(**data.get("options", {}))
    except (TypeError, ValueError, TecoInferError) as error:
        raise DataError(
            f"metric {data['class']} cannot be created with the options {data.get('options')}: {error}; write the "
            "result again with this version of the metric"
        ) from error


def _home(cls: type) -> str:
    """Return the module's name if other processes can import it, otherwise the path of its file."""
    module = sys.modules.get(cls.__module__)
    spec = getattr(module, "__spec__", None)
    name = spec.name if cls.__module__ == "__main__" and spec is not None else cls.__module__
    if name.endswith(".__main__") or ("." in name and name != "__main__"):
        return name
    file = getattr(module, "__file__", None)
    if file is None:
        raise ConfigError(f"metric {cls.__qualname__} is interactive, so other processes cannot find it; use a file")
    path = Path(file).resolve()
    return name if _is_installed(path) and name != "__main__" else str(path)


def _is_installed(path: Path) -> bool:
    """Return whether a file belongs to an installed package, which all processes can import by name."""
    folders = {sysconfig.get_path(key) for key in ("purelib", "platlib", "stdlib")}
    return any(path.is_relative_to(Path(folder).resolve()) for folder in folders if folder)


def _module(where: str, root: Path | None) -> ModuleType:
    try:
        with _loading:
            return _script(Path(where), root) if Path(where).is_absolute() else _imported(where, root)
    except TecoInferError:
        raise
    except (Exception, SystemExit) as error:
        reason = typed_reason(error)
        raise DataError(f"metric of {where} cannot be loaded: {reason}; check that it can be imported") from error


def _imported(name: str, root: Path | None) -> ModuleType:
    """Import a module by name, also from packages of ``utils`` below ``root/contrib``."""
    if root is None:
        return importlib.import_module(name)
    contrib = str(root / "contrib")
    if (root / "contrib").is_dir() and contrib not in sys.path:
        sys.path.append(contrib)
        importlib.invalidate_caches()
    parts = name.split(".")
    for length in range(1, len(parts)) if parts[0] == "utils" else ():
        package = importlib.import_module(".".join(parts[:length]))
        package.__path__ = pkgutil.extend_path(package.__path__, package.__name__)
    return importlib.import_module(name)


def _script(path: Path, root: Path | None) -> ModuleType:
    """Run a script as a module, without keeping modules next to it in ``sys.modules``."""
    path = path.resolve()
    if root is None or not path.is_relative_to(root.resolve()):
        raise DataError(f"metric of {path} is not below {root}, so it is not loaded; move the script there")
    if not path.is_file():
        raise DataError(f"metric of {path} cannot be loaded: the file does not exist; write the result again")
    changed, module = _scripts.get(path, (0, None))
    if module is not None and changed == path.stat().st_mtime_ns:
        return module
    spec = importlib.util.spec_from_file_location(f"teco_metric_{abs(hash(path)):x}", path)
    if spec is None or spec.loader is None:
        raise DataError(f"metric of {path} cannot be loaded: not a Python file; check the path")
    module = importlib.util.module_from_spec(spec)
    with _own_imports(path, spec.name):
        sys.modules[spec.name] = module  # needed by dataclasses
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
    _scripts[path] = (path.stat().st_mtime_ns, module)
    return module


@contextmanager
def _own_imports(path: Path, name: str) -> Iterator[None]:
    """Let a script import modules next to it, and remove these afterwards, except for the script itself."""
    before, search = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(path.parent))
    try:
        yield
    finally:
        sys.path[:] = search
        for other in set(sys.modules) - before - {name}:
            file = getattr(sys.modules[other], "__file__", None)
            if "." not in other and file is not None and Path(file).resolve().parent == path.parent:
                del sys.modules[other]
