"""Find the four classic bottlenecks in a profiled training: slow operator, copies, framework gaps, recompilation.

Only simulated times and counts are judged, so that the verdict does not depend on the speed of this machine.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from tecoinfer_modelzoo.formatting import plural
from toolkit.training.profile import fixes
from toolkit.training.profile.record import Launch, Profile, total

ALONE, SLOW_SHARE = 0.35, 0.2
"""Share of device time from which an operator is slow: in general, and if memory-bound. Of memory-bound matrix
products, such as the layers of a small network, one must also take twice as long as the next.
"""

NOTICED = 0.10  # share of device time from which anything else is reported
CHAINED = 3  # number of different operators of a module, or a line, on tensors of one size that form a chain
READS, CALLS = 3, 2  # reads by the host, and calls that wait, per batch and line from which they are reported

UPLOADS, UPLOAD_SHARE, PARTS = 0.05, 0.20, 8
"""Share of device time from which uploads are reported: for at least PARTS of them per line, which is more than the
tensors of a batch, and for fewer.
"""

LOOP, REPEATED = 32, 8
"""Small launches per line and step from which they are a loop, and repetitions of one operator required among them."""

LAUNCHES = 0.5
"""Share of device time of small launches from which a training without a loop is bound by launches."""

PREPARING = 8  # small launches that prepare one read
WARM = 2  # initial steps in which new shapes are normal
_READ = "aten::_local_scalar_dense"
_GRAPH = "sdaa_graph::"
_D2D = ("aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy")


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """One of the four bottlenecks, at one place."""

    kind: str  # one of :mod:`toolkit.training.profile.fixes`
    text: str  # description
    fix: str  # advice
    ops: tuple[str, ...]  # operators, the longest first
    modules: tuple[str, ...] = ()  # of the network
    source: str = ""  # ``file:line``, or "" if unknown
    per_step: float = 0.0  # launches in a step
    seconds: float = 0.0  # simulated, of a step
    share: float = 0.0  # of device time


def bottlenecks(profile: Profile) -> list[Bottleneck]:
    """Return the bottlenecks, the largest share of device time first within each kind."""
    rows = profile.launches()
    whole = total(rows)
    found = []
    if whole:
        for finder in (_slow, _copies, _gaps):
            found += sorted(finder(profile, rows, whole), key=lambda one: -one.share)
        found = [one for one in found if not _explained(one, found)]
    return [*found, *_synchronisations(profile), *_recompiled(list(_shapes(profile)), list(_compiled(profile)))]


def launch_share(profile: Profile) -> float:
    """Return the share of device time of kernels that take longer to launch than to compute, from 0 to 1."""
    rows = profile.launches()
    small = [row for row in rows if row.engine == "compute" and row.launch_bound]
    return total(small) / (total(rows) or 1.0)


def _explained(one: Bottleneck, others: Iterable[Bottleneck]) -> bool:
    """Return whether small launches only prepare a read at the same line that takes longer, or is one of few."""
    return one.kind == fixes.GAPS and any(
        (other.kind, other.source) == (fixes.COPIES, one.source)
        and (other.share > one.share or other.per_step * PREPARING >= one.per_step)
        for other in others
    )


def _grouped(rows: Iterable[Launch], key: Callable[[Launch], Any]) -> list[list[Launch]]:
    groups: dict[Any, list[Launch]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return list(groups.values())


def _made(profile: Profile, kind: str, rows: Sequence[Launch], whole: float, text: str, fix: str) -> Bottleneck:
    ranked = sorted(rows, key=lambda row: -row.seconds)
    seconds = total(rows)
    return Bottleneck(
        kind,
        text,
        fix,
        tuple(dict.fromkeys(row.op for row in ranked)),
        tuple(dict.fromkeys(row.module for row in ranked if row.module)),
        _main(rows)[0].source,
        profile.per_step(sum(row.count for row in rows)),
        profile.per_step(seconds),
        seconds / whole,
    )


def _without(rows: Iterable[Launch], group: Iterable[Launch]) -> list[Launch]:
    those = set(map(id, group))
    return [row for row in rows if id(row) not in those]


def _main(rows: Sequence[Launch]) -> list[Launch]:
    """Return the rows of the line that takes most time, the largest first."""
    line = max(_grouped(rows, lambda row: (row.file, row.line)), key=total)
    return sorted(line, key=lambda row: -row.seconds)


# --------------------------------------------------------------------------------------------------- slow operators


def _slow(profile: Profile, rows: Sequence[Launch], whole: float) -> Iterator[Bottleneck]:
    """Yield operators, each with its backward, that take most of the time by their work, not by their launches."""
    heavy = [row for row in rows if row.engine == "compute" and row.op not in _D2D and not row.launch_bound]
    for group in _attentions([row for row in heavy if not _wide(row)]):
        if total(group) / whole >= SLOW_SHARE:
            heavy = _without(heavy, group)
            at = next(row for row in group if row.op in _SOFTMAX)
            takes = f"takes {total(group) / whole:.0%} of the device's time"
            text = f"attention in steps, with a matrix of {at.inputs[0]}, {takes}"
            one = _made(profile, fixes.SLOW, group, whole, f"{text}, bound by memory", fixes.ATTENTION)
            yield replace(one, source=at.source)
    groups = _grouped(heavy, lambda row: "float64" if _wide(row) else (row.file, row.line, row.module))
    products = sorted(total(group) for group in groups if _multiplies(_main(group)[0]))
    for group in groups:
        share = total(group) / whole
        first = _main(group)[0]
        wide, by_memory = _wide(first), first.memory > first.arithmetic
        like_others = _multiplies(first) and total(group) < 2 * sum(products[-2:-1])
        work = by_memory and first.phase != "update" and not like_others
        if share < (NOTICED if wide else SLOW_SHARE if work else ALONE):
            continue
        bound = "float64" if wide else "memory" if by_memory else "compute"
        beside = [row for row in heavy if row.module == first.module] if first.module else group
        fix = _fix_of_slow(group, bound, first, beside)
        text = f"{first.op} on {', '.join(first.inputs[:3])} and similar operators take {share:.0%} of device time"
        if first.kernels:
            inside, most = sum(each["seconds"] for each in first.kernels), first.kernels[0]
            text = f"compiled {first.op} and similar operators take {share:.0%} of the device's time, "
            text += f"{most['kind']} (x{most['launches']}) {most['seconds'] / inside:.0%} of the first"
        yield _made(profile, fixes.SLOW, group, whole, f"{text}, bound by {bound}", fix)


def _fix_of_slow(group: Sequence[Launch], bound: str, first: Launch, beside: Sequence[Launch]) -> str:
    """Return the advice for a slow line; first: its longest operator; beside: rows of its module, or of the line."""
    if bound == "float64":
        return fixes.FLOAT64
    if first.phase == "update":
        passes = {row.op for row in group if row.phase == "update"}
        return f"{fixes.at_once(first.node)}; or {fixes.UPDATE}" if len(passes) > 1 else fixes.UPDATE
    if bound == "compute":
        return fixes.COMPUTE_LOWER if _lower(first) else fixes.COMPUTE
    if _multiplies(first):
        return fixes.PRODUCT
    if first.op == _TABLE:
        return fixes.TABLE
    if 2 * total([row for row in group if row.node in _PART_NODES]) > total(group):
        return fixes.PARTS
    # tensors of the same size are read and written repeatedly
    chained = [row for row in beside if row.phase == "forward" and row.inputs and row.inputs[0] == first.inputs[0]]
    return fixes.CHAIN if len({row.op for row in chained}) >= CHAINED else fixes.MEMORY


_TABLE = "aten::embedding_dense_backward"
_PART_NODES = ("SelectBackward0", "SliceBackward0")


def _multiplies(row: Launch) -> bool:
    """Return whether a launch is a matrix product, a convolution, or a compiled graph dominated by these."""
    kind = row.kernels[0]["kind"] if row.kernels else row.op.removeprefix("aten::")
    return kind.startswith(("mm", "addmm", "bmm", "baddbmm", "convolution"))


_SOFTMAX = ("aten::_softmax", "aten::_softmax_backward_data")
_PRODUCTS = ("aten::bmm", "aten::baddbmm")


def _attentions(heavy: Sequence[Launch]) -> Iterator[list[Launch]]:
    """Yield the operators of an attention matrix: those of a module around a softmax between two products."""
    for rows in _grouped(heavy, lambda row: row.module):
        tables = {_table(row.inputs[0]) for row in rows if row.op in _SOFTMAX and row.inputs}
        for table in tables:
            around = [row for row in rows if table in map(_table, (*row.inputs, *row.outputs))]
            if table and sum(row.op in _PRODUCTS for row in around) > 1:
                yield around


def _table(text: str) -> tuple[int, ...]:
    """Return the number of matrices in an operand and their two sizes; () if it has fewer than 3 dimensions."""
    sizes = [int(size) for size in re.findall(r"\d+", text.partition("[")[2])]
    return (prod(sizes[:-2]), *sizes[-2:]) if len(sizes) > 2 else ()


def _lower(row: Launch) -> bool:
    return any(text.startswith(("float16", "bfloat16")) for text in row.inputs)


def _wide(row: Launch) -> bool:
    return any(text.startswith(("float64", "complex128")) for text in row.inputs)


# ------------------------------------------------------------------------------------------------------------ copies


def _copies(profile: Profile, rows: Sequence[Launch], whole: float) -> Iterator[Bottleneck]:
    # a value and a shape read by the host at one line are one finding
    groups = _grouped(
        (row for row in rows if _way(row)), lambda row: (row.file, row.line, _READING.get(_way(row), _way(row)))
    )
    for group in groups:
        first = max(group, key=lambda row: row.seconds)
        way, share, count = _way(first), total(group) / whole, profile.usual(group)
        if way == "upload":
            share -= sum(row.hidden for row in group) / whole
            named = share >= UPLOAD_SHARE or (share >= UPLOADS and count / profile.passes >= PARTS)
        else:
            named = share >= NOTICED or (way in ("read", "decides") and count / profile.passes >= READS)
        if named:
            text = _copy_text(way, first, profile.per_step(sum(row.count for row in group)), share)
            own = way == "read" and all(row.phase == "update" for row in group)
            yield _made(profile, fixes.COPIES, group, whole, text, fixes.OWN_READS if own else _FIXES[way])


_READING = {"decides": "read"}
_FIXES = {
    "read": fixes.READS,
    "decides": fixes.DECIDES,
    "upload": fixes.UPLOADS,
    "between": fixes.BETWEEN,
    "contiguous": fixes.CONTIGUOUS,
}


def _way(row: Launch) -> str:
    """Return the kind of copy of a launch; "" if it is not a copy."""
    if row.engine == "copy out" or row.op == _READ:
        return "read"
    if row.engine == "copy in" and not row.op.startswith("tccl::"):
        return "upload"
    if row.engine == "copy between":
        return "between"
    if row.waits:
        return "decides"
    return "contiguous" if row.op in _D2D and not row.launch_bound else ""


def _copy_text(way: str, row: Launch, count: float, share: float) -> str:
    what = {
        "read": "the host reads from the device",
        "decides": f"the host waits for {row.op}",
        "upload": "the host copies to the device",
        "between": "devices copy to one another",
        "contiguous": "tensors are copied on the device",
    }[way]
    return f"{what} {count:.3g} times a step, {share:.0%} of the device's time"


def _synchronisations(profile: Profile) -> Iterator[Bottleneck]:
    for one in profile.data.get("synchronisations") or ():
        count = sum(one["by_step"].get(str(step), 0) for step in profile.steady)
        if profile.per_step(count) / profile.passes >= CALLS:
            text = f"the script waits for the device {profile.per_step(count):.3g} times a step by explicit calls"
            source = f"{one['file']}:{one['line']}" if one["line"] else ""
            ops = ("synchronize",)
            yield Bottleneck(fixes.COPIES, text, fixes.WAITS, ops, source=source, per_step=profile.per_step(count))


# ---------------------------------------------------------------------------------------------------- framework gaps


def _gaps(profile: Profile, rows: Sequence[Launch], whole: float) -> Iterator[Bottleneck]:
    """Yield lines that launch the same small operators repeatedly, each for less work than its launch takes.

    A loop is one operator of a module launched repeatedly by one line, in the forward or the update; a backward only
    follows it, unless the script defines it; an update is separate from the rest of its line. Several batches per step,
    or the layers of a network, each called once, are not a loop; modules called with the same operand are.
    """
    layers, siblings = _called(profile)
    small = [row for row in rows if row.engine == "compute" and row.launch_bound and not row.waits]
    for source, inside in sorted(siblings.items(), key=lambda one: -len(one[1])):  # the outermost line first
        group = [row for row in small if row.module in inside or row.source == source]
        if _is_loop(profile, group, whole):
            small = _without(small, group)
            text = f"{profile.usual(group):.0f} small launches a step of modules that one line calls with one operand"
            text += f", {total(group) / whole:.0%} of the device's time for little work"
            yield replace(_made(profile, fixes.GAPS, group, whole, text, fixes.SIBLINGS), source=source)
    for line in _grouped(small, lambda row: (row.file, row.line, row.phase == "update")):
        own = _grouped((row for row in line if row.phase != "backward" or row.own), lambda row: (row.op, row.module))
        often = max(REPEATED, 2 * layers.get(line[0].source, 0) + 1)
        looped = {rows[0].module for rows in own if profile.usual(rows) / profile.passes >= often}
        group = [row for row in line if row.module in looped]
        if not _is_loop(profile, group, whole):
            continue
        count, share = profile.usual(group), total(group) / whole
        update = all(row.phase == "update" for row in group)
        recurrent = all(row.module.endswith(_RECURRENT) for row in group)
        fix = fixes.at_once(group[0].node) if update else fixes.RECURRENT if recurrent else fixes.LOOPS
        text = f"{count:.0f} small launches a step from one line, {share:.0%} of the device's time for little work"
        yield _made(profile, fixes.GAPS, group, whole, text, fix)


_RECURRENT = ("(GRU)", "(LSTM)", "(RNN)")


def _is_loop(profile: Profile, group: Sequence[Launch], whole: float) -> bool:
    return profile.usual(group) / profile.passes >= LOOP and total(group) / whole >= NOTICED


def _called(profile: Profile) -> tuple[dict[str, int], dict[str, frozenset[str]]]:
    """Return by line the number of modules it calls in sequence, and the modules it calls with the same operand."""
    layers, siblings = {}, {}
    for one in profile.data.get("calls") or ():
        source, many = f"{one['file']}:{one['line']}", len(one["modules"])
        if many >= REPEATED and one["beside"] >= REPEATED:
            siblings[source] = frozenset(one["inside"])
        else:
            layers[source] = many
    return layers, siblings


# ----------------------------------------------------------------------------------------------------- recompilation


def _shapes(profile: Profile) -> Iterator[Bottleneck]:
    """Yield the line that creates new shapes in step after step: such cards compile each anew."""
    later = range(WARM, profile.steps)
    by_step: dict[int, list[dict[str, Any]]] = defaultdict(list)
    graphs: set[str] = set()
    for one in profile.data["fresh"]:
        compiled = one["op"].startswith(_GRAPH) and one["op"] not in graphs
        graphs.add(one["op"])
        if one["step"] in later and not compiled:  # new graphs are reported with the reason of their compilation
            by_step[one["step"]].append(one)
    if len(by_step) < 2 or len(by_step) < min(3, len(later) / 2):
        return
    firsts = [fresh[0] for fresh in by_step.values()]
    (file, line), _ = Counter((one["file"], one["line"]) for one in firsts).most_common(1)[0]
    every = [one for fresh in by_step.values() for one in fresh]
    ops = tuple(op for op, _ in Counter(one["op"] for one in every).most_common())
    modules = tuple(dict.fromkeys(one["module"] for one in firsts if one["module"]))
    seen = list(dict.fromkeys(", ".join(one["inputs"][:2]) for one in firsts if one["file"] == file))[:4]
    text = (
        f"operands of new shapes in {len(by_step)} of {plural(len(later), 'later step')}, first {firsts[0]['op']} on "
        f"{'; '.join(seen)}; {len(every)} new distinct launches"
    )
    source = f"{file}:{line}" if line else ""
    yield Bottleneck(
        fixes.RECOMPILATION, text, fixes.SHAPES, ops, modules, source, per_step=len(every) / max(len(later), 1)
    )


def _recompiled(shapes: list[Bottleneck], compiled: list[Bottleneck]) -> Iterator[Bottleneck]:
    """Yield both, merged if changing sizes are why torch.compile compiles again."""
    for one in shapes:
        sizes = [other for other in compiled if " size " in other.text]
        compiled = [other for other in compiled if other not in sizes]
        more = "".join(f"; {other.text}" for other in sizes)
        yield replace(one, text=one.text + more, fix=f"{one.fix}; or {fixes.DYNAMIC}" if sizes else one.fix)
    yield from compiled


def _compiled(profile: Profile) -> Iterator[Bottleneck]:
    """Yield functions that torch.compile compiled again more than once; once is normal: it makes a size dynamic."""
    again: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    for one in profile.data.get("compilations") or ():
        if one["reason"]:
            again[one["file"], one["line"], one["function"]].append(one["reason"])
    for (file, line, function), reasons in again.items():
        if len(reasons) > 1:
            reason = reasons[-1].partition("  #")[0].strip()  # without PyTorch's source line of the guard
            text = f"torch.compile compiled {function} again {plural(len(reasons), 'time')}: {reason}"
            source = f"{file}:{line}" if line else ""
            fix = fixes.GUARDS if re.search(r"size|stride|== -?\d", reasons[-1]) else fixes.CONSTANTS
            yield Bottleneck(fixes.RECOMPILATION, text, fix, (function,), (), source)
