"""One page about a model, to send: accuracy, speed, memory, operators, overflow and times of layers, on all targets."""

from toolkit.report.build import ModelReport, ReportFiles, build, report_of

__all__ = ["ModelReport", "ReportFiles", "build", "report_of"]
