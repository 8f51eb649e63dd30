"""Several processes on one or more machines: each evaluates a part of the data set; the parts are merged exactly."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.pipeline.launch.parts import Part, in_order, merge

__all__ = ["Part", "in_order", "merge"]
