import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.moved import names_of_module

__getattr__ = names_of_module(__name__, "task")
