"""More than one process, more than one machine: the data set is shared out, and the parts make one exact report."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.pipeline.launch.parts import Part, in_order, merge

__all__ = ["Part", "in_order", "merge"]
