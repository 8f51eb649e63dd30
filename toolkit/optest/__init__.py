"""One node cut out of a model, with its inputs and the baseline's outputs: a test for whoever owns the operator."""

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
