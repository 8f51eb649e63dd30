import pkgutil
import sys
from importlib import import_module
from pathlib import Path

__path__ = pkgutil.extend_path(__path__, __name__)

# This runs only where the core's own `utils` is not found before it. In a clone it is then put there and taken instead.
_CONTRIB = Path(__file__).resolve().parents[1]
_places = [i for i, folder in enumerate(sys.path) if Path(folder or ".").resolve() == _CONTRIB]
if _places and (_CONTRIB.parent / "utils" / "__init__.py").is_file():
    sys.path.insert(_places[0], str(_CONTRIB.parent))
    del sys.modules[__name__]
    sys.modules[__name__] = import_module("utils")
