"""Detection of foreign packages that have the name of one of the zoo's packages."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType

from tecoinfer_modelzoo.distribution import HOME

PACKAGES = ("engine", "utils", "tecoexec", "model_config", "toolkit", "transplant", "serve")
"""Packages of the zoo whose names other projects use too."""


class ForeignPackageError(ImportError):
    """Another project's package has the name of one of the zoo's; printed as one line if uncaught."""


def check(*names: str) -> None:
    """Raise ForeignPackageError if ``import NAME`` (default: all :data:`PACKAGES`) gives a foreign package."""
    for name in names or PACKAGES:
        places = _places(name)
        if places and not any(map(_is_ours, places)):
            raise _error(
                f"{name!r} is your own {places[0]} here, not the zoo's {HOME / name}; rename yours, or keep it in a "
                "folder that is neither the script's nor on PYTHONPATH"
            )


def explain() -> None:
    """Install a finder that reports foreign packages when a module of the zoo is not found."""
    if not any(isinstance(finder, _ForeignPackageFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ForeignPackageFinder())


def refuse_hidden(package: str, name: str) -> None:
    """Raise ForeignPackageError if ``from PACKAGE import NAME`` means another project's package that the zoo's hides.

    Called by a package's ``__getattr__``; other accesses, such as ``hasattr``, do not raise.
    """
    is_import = sys._getframe(2).f_code.co_name == "_handle_fromlist"  # called by importlib for the statement
    if not is_import or name.startswith("__") or importlib.util.find_spec(f"{package}.{name}") is not None:
        return
    hidden = next(_hidden(package), None)
    if hidden is not None:
        raise _error(
            f"{package!r} is the zoo's {HOME / package} here and has no {name!r}; your own {hidden} is hidden behind "
            "it; rename yours"
        )


class _ForeignPackageFinder:
    """Last finder of ``sys.meta_path``, called for modules that no other finder has found; never finds a module."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise if the zoo has this module and its top-level package belongs to another project."""
        top, _, rest = name.partition(".")
        if top in PACKAGES and rest:
            file = HOME.joinpath(*name.split("."))
            if file.is_dir() or file.with_suffix(".py").is_file():
                check(top)
        return None


def _places(name: str) -> list[str]:
    """Return the folders of a package as it is, or would be, imported; the file of a plain module."""
    module = sys.modules.get(name)
    if module is not None:
        return [*getattr(module, "__path__", ())] or [str(getattr(module, "__file__", None))]
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return [*(spec.submodule_search_locations or ())] or [str(spec.origin)]


def _is_ours(place: str) -> bool:
    """Return whether a folder is a package of any copy of the zoo, or its part in ``contrib/``."""
    folder = Path(place).resolve().parent
    own = Path("tecoinfer_modelzoo", "own_packages.py")
    return any((root / own).is_file() for root in (folder, folder.parent if folder.name == "contrib" else folder))


def _hidden(name: str) -> Iterator[Path]:
    """Yield packages and modules with this name on ``sys.path`` that do not belong to the zoo."""
    for folder in map(Path, sys.path):
        for place, file in ((folder / name, "__init__.py"), (folder / f"{name}.py", "")):
            if (place / file).is_file() and not _is_ours(str(place)):
                yield place.absolute()


def _error(text: str) -> ForeignPackageError:
    """Return the error, and install an excepthook that prints it without a traceback."""
    if sys.excepthook is not _one_line:
        _one_line.otherwise = sys.excepthook
        sys.excepthook = _one_line
    return ForeignPackageError(text)


class _OneLineHook:
    """Excepthook that prints :class:`ForeignPackageError` as one line and passes others on."""

    def __init__(self) -> None:
        self.otherwise = sys.excepthook

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
        """Print an uncaught exception."""
        if isinstance(error, ForeignPackageError):
            sys.stderr.write(f"error: {error}\n")
        else:
            self.otherwise(kind, error, trace)


_one_line = _OneLineHook()
