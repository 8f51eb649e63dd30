"""One page about a model, to send: accuracy, speed, memory, operators, overflow and times of layers, on all targets."""

from toolkit.report.build import ReportFiles, build, report_of
from toolkit.report.model import ModelReport

__all__ = ["ModelReport", "ReportFiles", "build", "report_of"]
