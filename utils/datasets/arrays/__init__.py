"""Samples as arrays, with expected arrays: files of NumPy, tables, and folders of them."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
