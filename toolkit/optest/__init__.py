"""One node of a model as a test case for the developer of the operator: model, inputs and the baseline's outputs."""

from toolkit.optest.case import LIMIT, write_case
from toolkit.optest.cut import check_node, find_node, single_node
from toolkit.optest.outcome import TARGETS, NodeTest, Outcome, run_case, runs_of, worst_error

__all__ = [
    "LIMIT",
    "TARGETS",
    "NodeTest",
    "Outcome",
    "check_node",
    "find_node",
    "run_case",
    "runs_of",
    "single_node",
    "worst_error",
    "write_case",
]
