"""The distribution itself: its version, how more of it is installed, and whether its packages are the ones imported.

Below every other package, importing none of them, under a name that is nobody else's: ``engine`` and ``utils`` are
names that a user's own folders have too. A script that begins with

    import tecoinfer_modelzoo

    tecoinfer_modelzoo.check()

ends with one line that names both folders where one of them stands in the way.
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
"""What users call (:mod:`toolkit.api`); the only names here from the packages above, imported when asked for."""


def __getattr__(name: str) -> object:
    if name not in FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("toolkit.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *FACE})
