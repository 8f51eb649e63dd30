import pkgutil

from tecoinfer_modelzoo import check, refuse_hidden

__path__ = pkgutil.extend_path(__path__, __name__)
check("engine")

from utils import moved as _moved, opened as _opened  # noqa: E402, F401 - old names; records opened files


def __getattr__(name: str) -> object:
    refuse_hidden(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
