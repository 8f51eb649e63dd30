"""Nothing of the core is copied here: this puts the core in front of ``contrib/`` on the path and imports the real one.

Scripts in ``contrib/example/x/y/`` that put only ``contrib/`` on the path come here where the core is not installed.
"""

import sys
from importlib import import_module
from pathlib import Path

_CONTRIB = Path(__file__).resolve().parents[1]
_CORE = _CONTRIB.parent

if not (_CORE / "engine" / "__init__.py").is_file():
    raise ImportError(f"{_CONTRIB} is not part of a clone: {_CORE} has no engine; install the core, or use the clone")
_places = [i for i, folder in enumerate(sys.path) if Path(folder or ".").resolve() == _CONTRIB]
sys.path.insert(_places[0] if _places else 0, str(_CORE))
del sys.modules[__name__]
sys.modules[__name__] = import_module("engine")
