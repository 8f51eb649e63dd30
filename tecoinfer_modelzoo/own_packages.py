"""Telling the zoo's packages from others of the same names: one line says which folder stands in the way."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType

from tecoinfer_modelzoo.distribution import HOME

PACKAGES = ("engine", "utils", "tecoexec", "model_config", "toolkit", "transplant")
"""The zoo's packages whose names are not its alone."""


class ForeignPackageError(ImportError):
    """A package of another project has the name of one of the zoo's; where nobody catches it, it is one line."""


def check(*names: str) -> None:
    """Refuse where ``import NAME`` would give, or has given, another project's package.

    Args:
        names: some of :data:`PACKAGES`; all of them where none is named.

    Raises:
        ForeignPackageError: the line names both folders and what to do.
    """
    for name in names or PACKAGES:
        places = _places(name)
        if places and not any(map(_is_ours, places)):
            raise _error(
                f"{name!r} is your own {places[0]} here, not the zoo's {HOME / name}; rename yours, or keep it in a "
                "folder that is neither the script's nor on PYTHONPATH"
            )


def explain() -> None:
    """Say from now on why a module of the zoo is not found in another project's package of its name."""
    if not any(isinstance(finder, _Explaining) for finder in sys.meta_path):
        sys.meta_path.append(_Explaining())


def refuse_hidden(package: str, name: str) -> None:
    """Refuse ``from PACKAGE import NAME`` where another project's package is hidden behind the zoo's, which lacks it.

    Called by a package's ``__getattr__``, whose other callers, such as ``hasattr``, only want to know.

    Raises:
        ForeignPackageError: the line names both folders.
    """
    asked = sys._getframe(2).f_code.co_name == "_handle_fromlist"  # how importlib serves the statement
    if not asked or name.startswith("__") or importlib.util.find_spec(f"{package}.{name}") is not None:
        return
    hidden = next(_hidden(package), None)
    if hidden is not None:
        raise _error(
            f"{package!r} is the zoo's {HOME / package} here and has no {name!r}; your own {hidden} is hidden behind "
            "it; rename yours"
        )


class _Explaining:
    """The last finder of ``sys.meta_path``: it is asked only for what no other one has found, and finds nothing."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise where the zoo has this module, and the package of its name is another project's."""
        top, _, rest = name.partition(".")
        if top in PACKAGES and rest:
            file = HOME.joinpath(*name.split("."))
            if file.is_dir() or file.with_suffix(".py").is_file():
                check(top)
        return None


def _places(name: str) -> list[str]:
    """Return the folders of a package as it is imported, or would be; the file of what is no package."""
    module = sys.modules.get(name)
    if module is not None:
        return [*getattr(module, "__path__", ())] or [str(getattr(module, "__file__", None))]
    spec = importlib.util.find_spec(name)
    if spec is None:
        return []
    return [*(spec.submodule_search_locations or ())] or [str(spec.origin)]


def _is_ours(place: str) -> bool:
    """Say whether a folder is a package of the zoo, of this copy or another, or the part of it in ``contrib/``."""
    folder = Path(place).resolve().parent
    own = Path("tecoinfer_modelzoo", "own_packages.py")
    return any((root / own).is_file() for root in (folder, folder.parent if folder.name == "contrib" else folder))


def _hidden(name: str) -> Iterator[Path]:
    """Yield the packages and modules of this name on the path that are not the zoo's."""
    for folder in map(Path, sys.path):
        for place, file in ((folder / name, "__init__.py"), (folder / f"{name}.py", "")):
            if (place / file).is_file() and not _is_ours(str(place)):
                yield place.absolute()


def _error(text: str) -> ForeignPackageError:
    """Return the error, which from now on ends a program without a traceback where nothing catches it."""
    if sys.excepthook is not _one_line:
        _one_line.otherwise = sys.excepthook
        sys.excepthook = _one_line
    return ForeignPackageError(text)


class _OneLine:
    """An excepthook for which :class:`ForeignPackageError` is a line, and all else what it was."""

    def __init__(self) -> None:
        self.otherwise = sys.excepthook

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None, /) -> None:
        """Print an uncaught exception."""
        if isinstance(error, ForeignPackageError):
            sys.stderr.write(f"error: {error}\n")
        else:
            self.otherwise(kind, error, trace)


_one_line = _OneLine()
