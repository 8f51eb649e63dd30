"""Text out of pictures: where the lines of a page are, and which characters they hold."""

import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)
