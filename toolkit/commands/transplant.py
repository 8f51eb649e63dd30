"""Move a training script, or a project, from CUDA to the card by its source.

The input is only read. OUTPUT gets a folder, named as the scripts' folder and _msft: the project with its changes,
change_list.csv (every change), unsupported_op.xlsx (what the card has no kernel for), msFmkTranspltlog.txt (the log)
and, with `distributed`, run_distributed_sdaa.sh. What no rule can decide is listed with its line, why, and what to do.
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
from toolkit.output import Column, ToolReport, add_output_flags, publish
from toolkit.training.operators.table import stored_table
from transplant.migrate import Options
from transplant.operators import by_name
from transplant.project import Outcome, Project, split
from transplant.user_rules import UserRules, read_rules
from transplant.writing import diff_text, launcher_text, place, write
from utils.places import check_folder, check_given

EPILOG = """\
of one card make several: teco transplant -i project -o out distributed -m train.py -t model
exit code: 0 all is done, 1 something is left to a person (the table says what), 2 nothing was written
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


def main(argv: Sequence[str]) -> int:
    """Migrate an input; print what is left to a person; return whether something is."""
    args = _arguments(argv)
    root, only = split(args.input)
    target = None if args.dry_run else place(root, args.output, args.force)
    if target is not None and not only and target.is_relative_to(root):
        raise ConfigError(f"--output {args.output} lies in the input {args.input}, which is only read; name another")
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
    files = publish(found, args, _brief(found)) if target is not None else _files_only(found, args)
    for file in files:
        print(f"written: {file}")
    return 1 if outcome.todo or rules.wrong else 0


def _files_only(found: ToolReport, args: argparse.Namespace) -> list[Path]:
    """Write the files of a dry run, and leave standard output to the diff."""
    from toolkit.output import print_report, write_files

    print_report(_brief(found), sys.stderr)
    return write_files(found, args)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = Parser("teco transplant", __doc__, EPILOG)
    parser.add_argument("-i", "--input", type=Path, required=True, metavar="PATH", help="a script, or its folder")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where the migrated folder goes")
    parser.add_argument("-r", "--rule", type=Path, metavar="FILE", help="JSON file with rules of your own")
    parser.add_argument(
        "-s",
        "--specify-device",
        action="store_true",
        help="SDAA_CALCULATE_DEVICE says which device a run takes; may break what a script does with several",
    )
    parser.add_argument(
        "-sim", "--similar", action="store_true", help="replace some names by similar ones; values and speed may differ"
    )
    parser.add_argument("--dry_run", action="store_true", help="write nothing, print the changes as a diff")
    parser.add_argument("--force", action="store_true", help="write a folder of an earlier run anew")
    add_output_flags(parser)
    commands = parser.add_subparsers(dest="command", metavar="distributed", parser_class=_Sub)
    several = commands.add_parser("distributed", help="of one card make several; stands last")
    several.add_argument("-m", "--main", type=Path, required=True, metavar="FILE", help="the script that is started")
    several.add_argument("-t", "--target_model", default="model", metavar="NAME", help="the model's variable (model)")
    try:
        args = parser.parse_args(argv)
    except ConfigError as error:
        told = re.match(r"argument distributed: invalid choice: ('.*?')", str(error))
        if told is None:
            raise
        raise ConfigError(
            f"{told[1]} is no argument here: -s and -sim take no value, and -m and -t stand behind `distributed`"
        ) from error
    if args.output is None and not args.dry_run:
        parser.error("the following arguments are required: -o/--output")
    if args.output is not None and not args.dry_run:
        check_folder("--output", args.output)
    check_given("--input", args.input)
    if args.command and not all(part.isidentifier() for part in args.target_model.split(".")):
        parser.error(f"-t {args.target_model} is no name of a variable")
    return args


class _Sub(argparse.ArgumentParser):
    """The parser of ``distributed``, whose errors are one line too."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ConfigError(f"{message} (see teco transplant --help)")


def _entry(given: Path, root: Path, only: str) -> str:
    """Return the file of ``-m`` from the root of the input.

    Raises:
        ConfigError: it is none of the input's files.
    """
    for base in (root, Path.cwd()):
        path = (base / given).resolve()
        if path.is_file() and path.is_relative_to(root.resolve()) and path.suffix == ".py":
            name = path.relative_to(root.resolve()).as_posix()
            if only in ("", name):
                return name
    raise ConfigError(f"distributed -m {given} is no Python file of the input; name the script that is started")


def _check(outcome: Outcome, given: Path) -> None:
    if not outcome.scripts and not outcome.problems:
        raise ConfigError(f"--input {given} has no Python file and no notebook; name the folder of a training script")
    if not outcome.uses_torch and not outcome.problems and not outcome.changes:
        raise ConfigError(f"--input {given} is no training script: nothing in it uses torch; name another")


def report(title: str, outcome: Outcome, target: Path | None, wrong: Sequence[str]) -> ToolReport:
    """Return what was changed and what is left: a row for each place."""
    rows = [
        {
            "file": note.file,
            "place": note.place,
            "kind": note.kind,
            "what": note.what,
            "reason": note.reason,
            "fix": note.fix,
        }
        for note in (*outcome.todo, *(note for note in outcome.notes if not note.fix))
    ]
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
    left = f"{plural(len(outcome.todo), 'place')} left to a person" if outcome.todo else "nothing left to do"
    lead = f"{counts}, {left}" + (f": {target}" if target else " (dry run)")
    kept = len(outcome.notes) - sum(1 for note in outcome.notes if note.fix)
    facts = {"files": str(len(outcome.files)), "scripts": str(outcome.scripts), "kept as they are": str(kept)}
    data = {
        "output": str(target) if target else None,
        "changes": [
            {
                "file": change.file,
                "line": change.line,
                "start": change.edit.start,
                "end": change.edit.end,
                "old": change.edit.old,
                "new": change.edit.new,
                "rule": change.edit.rule,
                "why": change.edit.why,
            }
            for change in outcome.changes
        ],
        "todo": len(outcome.todo),
        "operators": [
            {"file": one.file, "place": one.place, "operator": one.name, "level": one.level}
            for one in outcome.operators
        ],
    }
    notes = [f"{line}; this rule is left out" for line in wrong]
    missing = sum(1 for one in outcome.operators if one.level == "missing")
    if missing:
        notes.append(f"{plural(missing, 'call')} of operators that the card refuses: see unsupported_op.xlsx")
    return ToolReport("teco transplant", title, lead, COLUMNS, rows, bad, facts, notes, (), data)


def _brief(found: ToolReport) -> ToolReport:
    """Return what the terminal shows: the places that are left to a person."""
    rows = [found.rows[index] for index in sorted(found.bad)]
    return ToolReport(
        found.command,
        found.title,
        found.lead,
        [c for c in COLUMNS if c.key != "kind"],
        rows,
        facts=found.facts,
        notes=found.notes,
    )
