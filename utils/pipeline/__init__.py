import pkgutil

__path__ = pkgutil.extend_path(__path__, __name__)

from utils.pipeline.run.loops import Answer, evaluate, predict
from utils.pipeline.run.pipeline import Failure

__all__ = ["Answer", "Failure", "evaluate", "predict"]
