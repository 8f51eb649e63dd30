"""Tools for trainings.

gate     check whether a script trains on a device as on the CPU, by its loss curves and its metric
compare  find the first wrong operator of a training, from two dumps
replay   repeat one operator of a training from its dump
profile  show where the time of a training goes, and what slows it down
ops      list the operators that a training needs, and how the card serves each

'teco train gate --help' lists the arguments of 'gate'; the other tools likewise.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.command_table import TRAIN, load_function


def main(argv: Sequence[str]) -> int:
    """Run a training tool; return its exit code."""
    name = argv[0] if argv else "--help"
    if name in ("-h", "--help", "--version"):
        Parser(f"teco train {'|'.join(TRAIN)}", __doc__).parse_args([name])
    if name not in TRAIN:
        raise ConfigError(f"unknown training tool {name!r};{did_you_mean(name, TRAIN)} tools: {', '.join(TRAIN)}")
    return load_function(TRAIN[name])(argv[1:])
