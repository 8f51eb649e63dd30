"""One text of Python, migrated: every rule in its order."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

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
    r"|lightning|cupy|cuml|cudf|nvidia"
)
"""A file without any of these words needs no change by the built-in rules."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked for.

    Attributes:
        similar: ``-sim``. choose: ``-s``. rules: the user's. target: the model that ``distributed`` wraps; empty: it
            was not given. entry: the file ``-m`` names, from the root of the input.
    """

    similar: bool = False
    choose: bool = False
    rules: UserRules = field(default_factory=UserRules)
    target: str = ""
    entry: str = ""


def migrate(text: str, options: Options, *, run: bool = False, main: bool = False) -> Script:
    """Return a text as a script with all edits and findings.

    Args:
        text: of Python 3. options: of the run.
        run: whether it is run, and not only imported. main: whether it is the file that ``distributed -m`` names.

    Raises:
        NotPythonError: it is no Python 3.
    """
    check(text)
    script = Script(text)
    use_rules(script, options.rules)
    several = bool(options.target) and not is_distributed(script)
    which = EVERY if several else FIXED if options.choose else ""
    rewrite_names(script, names(), options.similar, which)
    rewrite_texts(script, which)
    leave_names(script)
    if options.target:
        make_multi_card(script, options.target, main)
    if script.edits or needs_card(script):
        place_import(script, run or main, options.choose)
    script.edits.sort()
    script.findings.sort()
    return script
