"""Version and installation of the distribution, and a check that its packages are the ones imported.

This package imports no other package of the zoo. Other projects also have packages named ``engine`` or ``utils``; a
script can detect such a conflict early with

    import tecoinfer_modelzoo

    tecoinfer_modelzoo.check()

which ends with one line that names both folders.
"""

from tecoinfer_modelzoo.interrupts import guard

guard()  # before anything that takes time

from tecoinfer_modelzoo import telemetry  # noqa: E402

telemetry.turn_off()  # before anything that imports another package

from tecoinfer_modelzoo.distribution import (  # noqa: E402
    NAME as NAME,
    clone as clone,
    has_packages as has_packages,
    install_command as install_command,
    python_path as python_path,
    version as version,
)
from tecoinfer_modelzoo.home import expanded as expanded, home_folder as home_folder  # noqa: E402
from tecoinfer_modelzoo.own_packages import (  # noqa: E402
    ForeignPackageError as ForeignPackageError,
    check as check,
    explain as explain,
    refuse_hidden as refuse_hidden,
)

FACE = ("evaluate", "models", "open_engine", "predict")
"""The public Python API (:mod:`toolkit.api`); these names are imported on first access."""


def __getattr__(name: str) -> object:
    if name not in FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("toolkit.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *FACE})
