"""Operators of the exported model against the card's table, with verified rewrites or the reason."""

from __future__ import annotations

from toolkit.adapt.runner import StageError
from toolkit.adapt.running import model_file
from toolkit.adapt.stage import Stage
from toolkit.adapt.work import NOTED, Outcome, Work
from toolkit.commands.ops import row, write_rewrites
from toolkit.ops.applied import no_rewrite
from toolkit.ops.judge import judge_file, summary
from toolkit.ops.table import LACKING, load_table
from toolkit.ops.trial import trial_of

TARGET = "sdaa"


class CheckOperators(Stage):
    """Judge every operator."""

    name, title, needs, optional = "operators", "operators", ("take_in", "export"), True

    def run(self, work: Work) -> Outcome:
        """Return the judgements; rewrites of lacking operators are written as models of one node.

        Raises StageError if the card lacks an operator that has no rewrite.
        """
        dims = {name: [size] for name, size in work.facts("export")["sizes"].items()}
        found, notes = judge_file(model_file(work), load_table(TARGET), 1, None, trial_of(TARGET), dims)
        lacking = [one for one in found if one.level in LACKING]
        reason = no_rewrite(found, TARGET)
        if reason:
            raise StageError(reason)
        files = write_rewrites(found, work.folder / "rewrites") if lacking else []
        applied = list(work.facts("take_in")["rewritten"])
        line = summary(found, TARGET)
        line += "".join(f"; {one.lacks}: {one.fix}" for one in lacking)
        line += f"; rewritten in the exported files: {', '.join(applied)}" if applied else ""
        facts = {"rows": [row(one) for one in found], "lacking": [one.lacks for one in lacking], "rewritten": applied}
        return Outcome(line, facts, files, notes, NOTED if lacking else "done")
