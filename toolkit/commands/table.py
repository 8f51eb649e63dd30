"""Tabulate the cost of models: parameters, multiply-adds, and simulated latency, throughput and memory on the card.

Parameters and multiply-adds are counted in the ONNX file, for one sample of the exported size. Times and memory are
simulated by the cost model of target sdaa, with default_pass.py; the model is not run, so weights may be random.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError, TecoInferError
from engine.sdaa import load_card
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.formatting import NO_VALUE, plural
from toolkit.arguments import Parser
from toolkit.model_arguments import positive
from toolkit.output import Column, ToolReport, add_output_flags, print_written, publish, write_text

BEGIN, END = "<!-- teco table: begin -->", "<!-- teco table: end -->"
"""Marks around the table in a Markdown file."""

BATCHES = (1, 16, 64)
MB = 1e6


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print and write the table; return 1 if a model could not be tabulated."""
    args = _parser().parse_args(argv)
    batches = sorted(set(args.batches))
    rows, notes = _rows(args.models, batches, args.dtype, root)
    report = _report(rows, notes, batches)
    publish(report, args)
    if args.markdown is not None:
        print_written([write_markdown(args.markdown, rows, notes, batches)])
    return 1 if notes and args.models else 0


def _parser() -> Parser:
    parser = Parser("teco table", __doc__)
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="ONNX files or models of the zoo (default: all that have a file)")
    sizes = "batch sizes, for the whole card (default: 1 16 64)"
    add("--batch_size", dest="batches", type=positive, nargs="+", default=list(BATCHES), metavar="N", help=sizes)
    parser.hide("--batch_size", "--batches")
    add("--dtype", choices=("float16", "float32"), default="float16", help="precision (default: float16)")
    add_output_flags(parser)
    add("--markdown", type=Path, metavar="FILE", help="write the table between its two marks in a Markdown file")
    return parser


def _rows(
    models: Sequence[str], batches: Sequence[int], dtype: str, root: Path
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row per model, and an error line per model that could not be tabulated."""
    from toolkit.profile.costs import cost_of

    rows, notes = [], []
    for name, file in _files(models, root):
        try:
            if isinstance(file, TecoInferError):
                raise file
            rows.append({"model": name, **asdict(cost_of(file, batches, dtype))})
        except TecoInferError as error:
            notes.append(f"{name}: {error}")
    if not rows:
        raise ConfigError(notes[0] if notes else f"no models under {root}; pass ONNX files, or names of 'teco list'")
    return rows, notes


def _files(models: Sequence[str], root: Path) -> Iterator[tuple[str, Path | TecoInferError]]:
    """Yield the name of every model, and its file or the error."""
    from toolkit.graph.inputs import model_file
    from toolkit.zoo import load_zoo

    for name in models or [model.path for model in load_zoo(root).models if model.root == root]:
        try:
            file = model_file(name, root)
        except TecoInferError as error:
            yield name, error
            continue
        yield (file.stem if file == Path(name) else name), file


def _report(rows: Sequence[dict[str, Any]], notes: Sequence[str], batches: Sequence[int]) -> ToolReport:
    columns = [
        Column("model", "model"),
        Column("parameters", "parameters", numeric=True),
        Column("multiply_adds", "multiply-adds", numeric=True),
        *(Column(f"latency_{n}", f"ms at {n}", numeric=True) for n in batches),
        *(Column(f"throughput_{n}", f"samples/s at {n}", numeric=True, spare=1) for n in batches),
        Column("memory", "MB per SPA", numeric=True, spare=2),
    ]
    flat = [row | _flat(row) for row in rows]
    counted = plural(len(rows), "model")
    lead = f"{counted}; times and memory are simulated ({load_card().source.name}), nothing was measured"
    facts = {"card": load_card().name, "simulated": "times and memory"}
    return ToolReport("teco table", "costs", lead, columns, flat, facts=facts, notes=[*notes, *_unknown(rows)])


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Return the simulated values of a row by column key: ms, samples per second, MB of 10^6 bytes."""
    found: dict[str, Any] = {"memory": round(row["simulated"][-1]["memory"] / MB, 1)}
    for one in row["simulated"]:
        found[f"latency_{one['batch']}"] = one["latency"] * 1e3
        found[f"throughput_{one['batch']}"] = one["throughput"]
    return found


def _unknown(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [
        f"{row['model']}: {len(row['unknown'])} nodes have data-dependent sizes and are not counted"
        for row in rows
        if row["unknown"]
    ]


def write_markdown(path: Path, rows: Sequence[dict[str, Any]], notes: Sequence[str], batches: Sequence[int]) -> Path:
    """Write the table between the marks of a Markdown file; return its path.

    Raises DataError if the file cannot be read or written, or lacks the marks.
    """
    try:
        text = text_of(path)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}; choose a file with {BEGIN} and {END}") from error
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise DataError(f"{path}: lacks the marks {BEGIN} and {END}; add them at the place of the table")
    lines = [*_table(rows, batches), *(f"- {note}" for note in (*notes, *_unknown(rows)))]
    return write_text(path, f"{before}{BEGIN}\n{chr(10).join(lines)}\n{END}{after}", "markdown")


def _table(rows: Sequence[dict[str, Any]], batches: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table in Markdown."""
    listed = "/".join(map(str, batches))
    yield (
        f"| model | input | parameters (M) | multiply-adds (G) | simulated latency, ms, at {listed} "
        f"| simulated samples/s at {listed} | simulated memory per SPA, MB |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|"
    for row in rows:
        flat = _flat(row)
        shape = "; ".join("x".join(map(str, one[1:])) for one in row["inputs"].values())
        latency = " / ".join(_number(flat.get(f"latency_{n}"), ".3g") for n in batches)
        rate = " / ".join(_number(flat.get(f"throughput_{n}"), ",.0f") for n in batches)
        counted = f"{row['parameters'] / 1e6:.2f} | {row['multiply_adds'] / 1e9:.3f}"
        yield f"| {row['model']} | {shape} | {counted} | {latency} | {rate} | {flat['memory']:.0f} |"


def _number(value: float | None, form: str) -> str:
    return NO_VALUE if value is None else format(value, form)
