"""Migration of one Python text: all rules in order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from transplant.compiling import choose_backend
from transplant.cuda import leave_names, rewrite_names
from transplant.multi_card import is_distributed, make_multi_card
from transplant.names import names
from transplant.numbers import EVERY, FIXED
from transplant.placing import needs_card, place_import
from transplant.script import Script
from transplant.source import check
from transplant.texts import rewrite_texts
from transplant.user_rules import UserRules, use_rules

INTERESTING = re.compile(
    r"(?i)cuda|nccl|DataParallel|apex|pynvml|triton|flash_attn|xformers|bitsandbytes|deepspeed|horovod|tensorrt"
    r"|lightning|cupy|cuml|cudf|nvidia|torch\.accelerator|accelerate|transformers|torch\.compile|_dynamo"
    r"|\bimport\s[^\n#]*\bcompile\b"
    r"|\.compile\(\s*(?:backend|mode|fullgraph|dynamic|options)\s*="
)
"""Built-in rules do not change a file without any of these words."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run.

    Attributes:
        similar: ``-sim``. choose: ``-s``. rules: the user's. target: model variable for ``distributed``; empty: not
            given.
        entry: file of ``-m``, relative to the input.
    """

    similar: bool = False
    choose: bool = False
    rules: UserRules = field(default_factory=UserRules)
    target: str = ""
    entry: str = ""


def migrate(text: str, options: Options, *, run: bool = False, main: bool = False) -> Script:
    """Return a text as a script with all edits and findings.

    Args:
        text: Python 3 code. options: of the run.
        run: whether it is executed, not only imported. main: whether it is the file of ``distributed -m``.

    Raises:
        NotPythonError: it is not Python 3.
    """
    check(text)
    script = Script(text)
    use_rules(script, options.rules)
    several = bool(options.target) and not is_distributed(script)
    which = EVERY if several else FIXED if options.choose else ""
    rewrite_names(script, names(), options.similar, which)
    rewrite_texts(script, which)
    choose_backend(script)
    leave_names(script)
    if options.target:
        make_multi_card(script, options.target, main)
    if script.edits or needs_card(script):
        place_import(script, run or main, options.choose)
    script.edits.sort()
    script.findings.sort()
    return script
