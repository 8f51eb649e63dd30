"""Migrate the source of a training script, or of a project, from CUDA to the card.

The input is not modified. The migrated project is written to a folder of --out, named after the input with the suffix
_msft, with change_list.csv (all changes), unsupported_op.xlsx (operators without a kernel on the card),
msFmkTranspltlog.txt (the log) and, with `distributed`, run_distributed_sdaa.sh. Lines that no rule can migrate are
listed with the reason and the fix.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.formatting import plural
from toolkit.arguments import Parser
from toolkit.output import Column, ToolReport, add_output_flags, print_report, print_written, publish, write_files
from toolkit.training.operators.table import stored_table
from transplant.migrate import Options
from transplant.operators import by_name
from transplant.project import Outcome, Project, split
from transplant.user_rules import UserRules, read_rules
from transplant.writing import diff_text, launcher_text, place, write
from utils.places import check_folder, check_paths

EPILOG = """\
from one card to several: teco transplant -i project -o out distributed -m train.py -t model
exit code: 0 everything was migrated, 1 some lines need manual work (see the table), 2 nothing was written
"""

COLUMNS = (
    Column("file", "file"),
    Column("place", "line"),
    Column("kind", "kind", brief=False),
    Column("what", "what"),
    Column("reason", "why", spare=1),
    Column("fix", "what to do"),
)

CHANGED = "changed"

_EDIT = ("start", "end", "old", "new", "rule", "why")
"""Attributes of an edit in the JSON."""


def main(argv: Sequence[str]) -> int:
    """Migrate the input and print the lines that need manual work; return 1 if there are any."""
    args = _arguments(argv)
    root, only = split(args.input)
    target = None if args.dry_run else place(root, args.output, args.force)
    if target is not None and not only and target.is_relative_to(root):
        raise ConfigError(f"--out {args.output} lies inside the input {args.input}; choose another folder")
    rules = read_rules(args.rule) if args.rule else UserRules()
    several = args.command == "distributed"
    entry = _entry(args.main, root, only) if several else ""
    options = Options(
        args.similar, args.specify_device, rules, args.target_model.rpartition(".")[2] if several else "", entry
    )
    outcome = Project(root, only, options, by_name(stored_table().levels)).run()
    _check(outcome, args.input)
    if target is None:
        sys.stdout.write(diff_text(outcome))
    else:
        write(root, only, target, outcome, launcher_text(entry) if several else "")
    found = report(args.input.name or str(args.input), outcome, target, rules.wrong)
    if target is not None:
        publish(found, args, _brief(found))
    else:  # standard output has the diff
        print_report(_brief(found), sys.stderr)
        print_written(write_files(found, args))
    return 1 if outcome.todo or rules.wrong else 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("teco transplant", __doc__, EPILOG)
    add = parser.add_argument
    add("-i", "--input", type=Path, required=True, metavar="PATH", help="a script, or its folder")
    add("-o", "--out", dest="output", type=Path, metavar="DIR", help="output folder")
    parser.hide("--out", "--output")
    add("-r", "--rule", type=Path, metavar="FILE", help="JSON file with additional rules")
    device = "select the device by SDAA_CALCULATE_DEVICE; scripts that use several devices may break"
    add("-s", "--specify_device", action="store_true", help=device)
    parser.hide("--specify_device", "--specify-device")
    similar = "replace unsupported names by similar ones; values and speed may differ"
    add("-sim", "--similar", action="store_true", help=similar)
    add("--dry_run", action="store_true", help="write nothing, print the changes as a diff")
    add("--force", action="store_true", help="overwrite the folder of an earlier run")
    add_output_flags(parser)
    commands = parser.add_subparsers(dest="command", metavar="distributed", parser_class=_Sub)
    several = commands.add_parser("distributed", help="migrate from one card to several; the last argument")
    several.add_argument("-m", "--main", type=Path, required=True, metavar="FILE", help="main script of the training")
    variable = "variable that holds the model (default: model)"
    several.add_argument("-t", "--target_model", default="model", metavar="NAME", help=variable)
    try:
        args = parser.parse_args(argv)
    except ConfigError as error:
        invalid = re.match(r"argument distributed: invalid choice: ('.*?')", str(error))
        if invalid is None:
            raise
        raise ConfigError(
            f"{invalid[1]} is not a valid argument: the input follows -i, -s and -sim take no value, and -m and -t "
            "follow `distributed` (see teco transplant --help)"
        ) from error
    if args.output is None and not args.dry_run:
        parser.error("the following arguments are required: -o/--out")
    if args.output is not None and not args.dry_run:
        check_folder("--out", args.output)
    check_paths("--input", args.input)
    if args.command and not all(part.isidentifier() for part in args.target_model.split(".")):
        parser.error(f"-t {args.target_model} is not a variable name")
    return args


class _Sub(argparse.ArgumentParser):
    """Parser of ``distributed``, with errors in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"{message} (see teco transplant --help)")


def _entry(given: Path, root: Path, only: str) -> str:
    """Return the file of ``-m`` relative to the root of the input; raise ConfigError if it is no Python file of it."""
    for base in (root, Path.cwd()):
        path = (base / given).resolve()
        if path.is_file() and path.is_relative_to(root.resolve()) and path.suffix == ".py":
            name = path.relative_to(root.resolve()).as_posix()
            if only in ("", name):
                return name
    raise ConfigError(f"distributed -m {given} is not a Python file of the input; pass the main script")


def _check(outcome: Outcome, given: Path) -> None:
    if not outcome.scripts and not outcome.problems:
        raise ConfigError(f"--input {given} has no Python file or notebook; pass the folder of a training script")
    if not outcome.uses_torch and not outcome.problems and not outcome.changes:
        raise ConfigError(f"--input {given} is not a training script: it does not use torch; pass another")


def report(title: str, outcome: Outcome, target: Path | None, wrong: Sequence[str]) -> ToolReport:
    """Return the report: a row for each change and for each line that needs manual work."""
    listed = (*outcome.todo, *(note for note in outcome.notes if not note.fix))
    rows = [{column.key: getattr(note, column.key) for column in COLUMNS} for note in listed]
    bad = frozenset(range(len(outcome.todo)))
    rows += [
        {
            "file": change.file,
            "place": change.place,
            "kind": CHANGED,
            "what": f"{change.edit.old or '(nothing)'} -> {change.edit.new}",
            "reason": change.edit.why,
            "fix": "",
        }
        for change in outcome.changes
    ]
    counts = f"{plural(len(outcome.changes), 'change')} in {plural(len(outcome.written), 'file')}"
    left = f"{plural(len(outcome.todo), 'place')} left to do by hand" if outcome.todo else "nothing left to do"
    lead = f"{counts}, {left}" + (f": {target}" if target else " (dry run)")
    kept = len(outcome.notes) - sum(1 for note in outcome.notes if note.fix)
    facts = {"files": str(len(outcome.files)), "scripts": str(outcome.scripts), "kept as they are": str(kept)}
    data = {
        "output": str(target) if target else None,
        "changes": [
            {"file": change.file, "line": change.line, **{key: getattr(change.edit, key) for key in _EDIT}}
            for change in outcome.changes
        ],
        "todo": len(outcome.todo),
        "operators": [
            {"file": one.file, "place": one.place, "operator": one.name, "level": one.level}
            for one in outcome.operators
        ],
    }
    notes = [f"{line}; the rule is skipped" for line in wrong]
    missing = sum(1 for one in outcome.operators if one.level == "missing")
    if missing:
        notes.append(f"{plural(missing, 'call')} of operators that the card does not support: see unsupported_op.xlsx")
    return ToolReport("teco transplant", title, lead, COLUMNS, rows, bad, facts, notes, (), data)


def _brief(found: ToolReport) -> ToolReport:
    """Return the report for the terminal: the lines that need manual work."""
    rows = [found.rows[index] for index in sorted(found.bad)]
    columns = [c for c in COLUMNS if c.key != "kind"]
    return ToolReport(found.command, found.title, found.lead, columns, rows, facts=found.facts, notes=found.notes)
