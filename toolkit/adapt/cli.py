"""Adapt a model: from a file and its data to a checked folder of the zoo, without a line written by hand.

The stages run in order: take in, export, task, data, operators, scaffold, onnx, sdaa, other targets, rewrite rules,
tecoexec, document, check, page. The state is in adapt.json of the working folder; the same command runs again only what
has changed, and continues after Ctrl-C. The exit code is 0 if the check passes, 1 if not, 2 if a stage failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.json_values import plain_json
from tecoinfer_modelzoo.text import one_line, shortened
from toolkit.adapt.runner import Shown, StageError, run_stages
from toolkit.adapt.sources import FORMS, find_source
from toolkit.adapt.stage import Stage
from toolkit.adapt.stages.data import PREVIEW
from toolkit.adapt.stages.page import FILE
from toolkit.adapt.table import STAGES
from toolkit.adapt.work import FAILED, STATE, Request, Work, open_work, usable_name
from toolkit.arguments import Parser
from toolkit.model_arguments import positive, shape
from toolkit.scaffold import check_case
from utils.fetch import is_fetched_path, read_contrib
from utils.pipeline.run.interrupt import telling
from utils.tasks.find import add_contrib, find_task

OPEN = "readme-open"
"""Rule of the check that refuses open questions."""

LINE = 400
"""Largest number of characters of a stage's line on the terminal; the page has all."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Run the stages; print one line each."""
    args = _parser().parse_args(argv)
    add_contrib(root)
    read_contrib(root)
    request = _request(args, root)
    work = open_work(request, (args.out or Path(f"adapt_{request.name}")).absolute())
    work.ask = _ask
    if not work.case:  # before minutes of work
        check_case(request.name, root)
    many = len(STAGES)
    state = os.path.relpath(work.folder / STATE)
    try:
        with telling(lambda: f"after {len(work.records)} stages, which are in {state}; the same command continues"):
            run_stages(
                work,
                STAGES,
                only=args.only,
                again=args.again,
                on_start=lambda number, stage: _started(number, many, stage),
                on_end=lambda shown: _ended(shown, many),
            )
    except StageError as error:
        _clear()
        raise ConfigError(f"{error} (the stages before are kept in {state})") from error
    except KeyboardInterrupt:
        _clear()
        raise
    return _end(work, args.only)


def _parser() -> Parser:
    parser = Parser("teco adapt", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help=f"one of: {FORMS}")
    add("--task", metavar="NAME", default="", help="task of the zoo (default: guessed; in a script arrays if unsure)")
    add("--data", metavar="PATH", default="", help="labelled data (default: random inputs, a functional case)")
    add("--golden", type=Path, metavar="PATH", help="answers of the source framework, to find wrong preprocessing")
    add("--out", type=Path, metavar="DIR", help="working folder (default: adapt_NAME)")
    add("--contrib", action="store_true", help="create the model below contrib/")
    add("--name", metavar="NAME", default="", help="name of the model (default: that of MODEL)")
    add("--domain", metavar="NAME", default="", help="folder below example/ (default: that of the task)")
    add("--weights", metavar="W", default="", help="of a network by name or a module: a name, a file, own, or random")
    add("--dim", action="append", default=[], metavar="NAME=N", help="size of a dynamic dimension; several may follow")
    add("--shape", type=shape, action="append", default=[], metavar="INPUT=N,N,..", help="input of a PyTorch module")
    add(
        "--input_dtype", action="append", default=[], metavar="INPUT=TYPE", help="its dtype if it is not float32: int64"
    )
    note = "metadata that an ONNX file lacks, such as preprocess='{\"mean\": [0, 0, 0]}'"
    add("--note", action="append", default=[], metavar="KEY=JSON|@FILE", help=note)
    add("--default", action="append", default=[], metavar="FLAG=VALUE", help="default of a flag of the scripts")
    add("--batch_size", type=positive, default=16, metavar="N", help="samples per call to the card (default: 16)")
    add("--random", type=positive, default=64, metavar="N", help="random samples without --data (default: 64)")
    add("--source", metavar="TEXT", default="", help="who published the model, with a link")
    add("--licence", metavar="NAME", default="", help="licence of the weights")
    add("--data_source", metavar="TEXT", default="", help="where the data are from, and under which terms")
    add("--weights_url", metavar="URL", default="", help="where weights over 2 MB are downloaded")
    names = ", ".join(stage.name for stage in STAGES)
    add("--only", metavar="STAGE", default="", help=f"run one stage again: {names}")
    add("--again", metavar="STAGE", default="", help="run this stage again, and what depends on it")
    return parser


def _request(args: argparse.Namespace, root: Path) -> Request:
    """Return the request, after checks that need no work. Raises ConfigError for a wrong value."""
    source = find_source(args.model)
    if args.task:
        find_task(args.task)
    if args.data and not is_fetched_path(args.data) and not Path(args.data).exists():
        raise ConfigError(f"--data {args.data} does not exist; check the path")
    if args.golden is not None and not args.golden.exists():
        raise ConfigError(f"--golden {args.golden} does not exist; check the path")
    if args.golden is not None and not args.data:
        raise ConfigError("--golden has the answers to the samples of --data; give both")
    if args.weights_url and not re.fullmatch(r"https?://[^\s\"'<>\\]+", args.weights_url):
        raise ConfigError(f"--weights_url {args.weights_url!r} is not a URL; write https://HOST/PATH")
    name = args.name or usable_name(source.usual_name)
    if name != usable_name(name):
        raise ConfigError(
            f"--name {name!r} must have lower-case letters, digits and underscores; write {usable_name(name)!r}"
        )
    return Request(
        model=args.model,
        name=name,
        root=root,
        task=args.task,
        domain=args.domain,
        data=args.data,
        golden=args.golden,
        weights=args.weights,
        contrib=args.contrib,
        notes=dict(map(_note, args.note)),
        dims=dict(map(_dim, args.dim)),
        shapes=dict(args.shape),
        dtypes=dict(map(_dtype, args.input_dtype)),
        defaults=args.default,
        source=args.source,
        licence=args.licence,
        data_source=args.data_source,
        weights_url=args.weights_url,
        batch=args.batch_size,
        samples=args.random,
    )


def _dim(word: str) -> tuple[str, int]:
    name, _, size = word.partition("=")
    if not name or not size.isdigit() or int(size) < 1:
        raise ConfigError(f"--dim {word!r} is not NAME=N; write the dimension's name and a size, such as seq=64")
    return name, int(size)


def _note(word: str) -> tuple[str, Any]:
    key, _, text = word.partition("=")
    if not key or not text:
        raise ConfigError(f"--note {word!r} is not KEY=JSON; write a key of the metadata and its value, or KEY=@FILE")
    try:
        found = read_regular(Path(text[1:])).decode() if text.startswith("@") else text
        return key, plain_json(found)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--note {key}: {shortened(text, 80)} is not JSON ({one_line(error)}); correct it") from error


def _dtype(word: str) -> tuple[str, str]:
    name, _, kind = word.partition("=")
    known = ("float32", "int64", "int32", "uint8", "bool")
    if not name or kind not in known:
        raise ConfigError(f"--input_dtype {word!r} is not INPUT=TYPE; types: {', '.join(known)}")
    return name, kind


def _ask(question: str, choices: Sequence[str], usual: str) -> str | None:
    """Ask at a terminal, and return one of the choices; ``None`` where standard input is not one."""
    if not sys.stdin.isatty() or not sys.stderr.isatty():
        return None
    _clear()
    print(question, file=sys.stderr)
    while True:
        print(f"{' / '.join(choices)} [{usual}]: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer or not answer.strip():
            return usual
        if answer.strip() in choices:
            return answer.strip()
        print(f"{answer.strip()!r} is not one of them", file=sys.stderr)


def _started(number: int, many: int, stage: Stage) -> None:
    if sys.stderr.isatty():
        print(f"[{number:2}/{many}] {stage.title} ...", end="\r", file=sys.stderr, flush=True)


def _clear() -> None:
    """Remove the line of a stage that runs from a terminal."""
    if sys.stderr.isatty():
        blank = " " * (shutil.get_terminal_size().columns - 1)  # the stream writes no escape sequences
        print(f"\r{blank}\r", end="", file=sys.stderr, flush=True)


def _ended(shown: Shown, many: int) -> None:
    _clear()
    how = "kept" if shown.skipped else f"{shown.record.seconds:.1f} s"
    mark = {"done": " ", FAILED: "x"}.get(shown.record.status, "!")
    line = shortened(shown.record.line, LINE)
    print(f"[{shown.number:2}/{many}] {mark} {shown.stage.title:14} {line} ({how})", flush=True)


def _end(work: Work, only: str) -> int:
    """Print where the results are, and what is left to a person; return the exit code."""
    if only:
        return 1 if work.records[only].status == FAILED else 0
    check, folder = work.facts("check"), str(work.facts("scaffold")["folder"])
    page, preview = (os.path.relpath(work.folder / name) for name in (FILE, PREVIEW))
    print(f"folder: {folder}; page: {page}; preview: {preview}")
    left = work.facts("document")["open"]
    for question in left:
        print(f"open: {question}")
    if left:
        print(_left_to_do(left, check["reasons"]))
    return 0 if check["code"] == 0 else 1


def _left_to_do(questions: Sequence[str], reasons: Sequence[str]) -> str:
    """Return the flags that answer the open questions, and whether the check found anything else."""
    flags = " ".join(match[1] for one in questions if (match := re.search(r"\(`(--\w+ \w+)`", one)))
    others = [one for one in reasons if f": {OPEN}: " not in one]
    rest = f"; {plural(len(others), 'other finding')} of the check" if others else ", and the check passes"
    return f"left to do: the same command with {flags}{rest}"
