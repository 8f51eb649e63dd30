"""What ``teco new`` makes a model of: ``*.tmpl`` files per task, and the sample data drawn for it."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
