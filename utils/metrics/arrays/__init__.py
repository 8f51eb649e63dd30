"""Metrics of arrays of any shape: errors of elements, classes of positions, and several outputs of one model."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
