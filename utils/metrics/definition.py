"""A metric as JSON, so that another process can make it again: its class by name, and the options it was made with."""

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
    """Return what :func:`metric_from_json` makes the metric of again, without anything it has seen.

    Returns:
        ``{"class": "utils.metrics.classification:TopK", "options": {"k": 1}}``. A class of a script, or of a module
        beside one, has the file's path instead of the module's name. Options are the arguments the metric was made
        with, the defaults among them.

    Raises:
        ConfigError: another process cannot make it: its class is not at the top level of a file, or an argument has no
            name or is no plain JSON value.
    """
    cls = type(metric)
    if "<locals>" in cls.__qualname__:
        raise ConfigError(
            f"metric {cls.__qualname__} is defined inside a function, where no other process finds it; define it at "
            "the top level of a file"
        )
    return {"class": f"{_home(cls)}:{cls.__qualname__}", "options": plain_arguments(type(metric), *metric._arguments)}


def metric_from_json(data: Any, root: Path | None) -> Metric:
    """Make a metric of what :func:`metric_to_json` returned; it has seen nothing.

    Its module is imported: one of ``contrib/utils`` below ``root`` is found too, a script is run as a module, not as
    the main program.

    Args:
        data: the definition.
        root: the repository; a script must lie below it. ``None``: only modules that any process imports by name.

    Raises:
        DataError: the definition is none, or names nothing that can be loaded, or no :class:`Metric`.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("class"), str):
        raise DataError(f"{data!r} is not a metric's definition; write the result again with this version of the zoo")
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
            f"metric {data['class']} cannot be made with the options {data.get('options')}: {error}; write the result "
            "again with this version of the metric"
        ) from error


# ---------------------------------------------------------------------------------------------------- where classes are


def _home(cls: type) -> str:
    """Return the module's name where any process can import it by that, and otherwise the path of its file."""
    module = sys.modules.get(cls.__module__)
    spec = getattr(module, "__spec__", None)
    name = spec.name if cls.__module__ == "__main__" and spec is not None else cls.__module__
    if name.endswith(".__main__") or ("." in name and name != "__main__"):
        return name
    file = getattr(module, "__file__", None)
    if file is None:
        raise ConfigError(f"metric {cls.__qualname__} was typed in, so no other process finds it; define it in a file")
    path = Path(file).resolve()
    return name if _is_installed(path) and name != "__main__" else str(path)


def _is_installed(path: Path) -> bool:
    """Say whether a file belongs to an installed package, which every process of this interpreter imports by name."""
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
    """Import a module by name; packages of ``utils`` are looked for below ``root/contrib`` too."""
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
    """Run a script as a module; what it imports from beside itself is not left to other scripts."""
    path = path.resolve()
    if root is None or not path.is_relative_to(root.resolve()):
        raise DataError(f"metric of {path} does not lie below {root}, so it is not loaded; keep the script there")
    if not path.is_file():
        raise DataError(f"metric of {path} cannot be loaded: there is no such file; write the result again")
    changed, module = _scripts.get(path, (0, None))
    if module is not None and changed == path.stat().st_mtime_ns:
        return module
    spec = importlib.util.spec_from_file_location(f"teco_metric_{abs(hash(path)):x}", path)
    if spec is None or spec.loader is None:
        raise DataError(f"metric of {path} cannot be loaded: it is not a Python file; check the path")
    module = importlib.util.module_from_spec(spec)
    with _own_imports(path, spec.name):
        sys.modules[spec.name] = module  # dataclasses look their module up
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[spec.name]
            raise
    _scripts[path] = (path.stat().st_mtime_ns, module)
    return module


@contextmanager
def _own_imports(path: Path, name: str) -> Iterator[None]:
    """Let a script import what lies beside it, and forget that afterwards; the script itself, by its name, stays."""
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
