"""Metrics of images and maps: similarity of restored images, errors of depth and disparity."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
