import pkgutil

from utils.moved import names_of_module

__path__ = pkgutil.extend_path(__path__, __name__)
__getattr__ = names_of_module(__name__, "task")
