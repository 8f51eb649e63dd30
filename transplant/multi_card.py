"""``distributed``: convert a single-card script for several cards, one process each, with DistributedDataParallel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from transplant.loaders import SAMPLER as _SAMPLER, share_data
from transplant.placing import insert_line, top_statement
from transplant.script import Script, path_of
from transplant.wrapped import function_of, through_wrapper

RULE = "several cards"
FIRST = 'os.environ.get("RANK", "0") == "0"'
"""Condition that is true in one process, also before the group exists."""

_LOGGER = re.compile(r"(?i)_?log(ger)?s?")
_SHOWN = frozenset({"debug", "info", "warning", "warn", "critical"})
_SAVED = frozenset(
    [
        "torch.save",
        "torch.jit.save",
        "torch.onnx.export",
        "torchvision.utils.save_image",
        "numpy.save",
        "numpy.savez",
        "numpy.savetxt",
        "json.dump",
        "yaml.dump",
        "pickle.dump",
        "matplotlib.pyplot.savefig",
        "joblib.dump",
    ]
)
_COPIED = frozenset({"shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.move", "os.rename", "os.replace"})
"""Saving functions if the same function saves: in a second process the file would not exist yet."""

_WRITERS = re.compile(r"(.*\.)?(SummaryWriter|wandb\.init|mlflow\.start_run)")
_PLAIN = re.compile(
    r"abs|abspath|basename|bool|cpu|ctime|detach|dict|dim|dirname|divmod|elapsed_time|enumerate|exists|flatten|"
    r"float|format|format|get|get_last_lr|get_lr|getattr|hasattr|id|int|isinstance|isoformat|item|items|join|keys|"
    r"len|list|lower|max|max_memory_allocated|mean|memory_allocated|min|norm|now|numel|numpy|parameters|"
    r"perf_counter|pow|range|repr|round|set|size|sorted|split|std|str|strftime|strip|sum|time|tolist|total_seconds|"
    r"tuple|type|upper|values|zip"
)
"""Functions that may run in a single process."""

_DDP = "torch.nn.parallel.DistributedDataParallel"
_MOVED = re.compile(r"\.(cuda|sdaa|to)\(|device *=")


def make_multi_card(script: Script, target: str, main: bool) -> None:
    """Convert a script for several cards.

    Args:
        script: receives the edits. target: variable of the model. main: whether it is the started script.
    """
    before = len(script.edits)
    if is_distributed(script):
        for node in script.nodes:
            if isinstance(node, cst.Call) and (script.dotted(node.func) or "").endswith("init_process_group"):
                script.todo(
                    node.func,
                    "the script itself uses several processes",
                    "start it as before, without `distributed`",
                )
        return
    share_data(script)
    _first_process(script, main)
    if main:
        _hide_nothing(script)
        _wrap(script, target)
    else:
        through_wrapper(script, target, None, None)
    if len(script.edits) > before:
        _need_os(script)


def is_distributed(script: Script) -> bool:
    """Return whether a script already uses several processes."""
    words = ("init_process_group", "DistributedDataParallel", "DistributedSampler")
    return any(isinstance(node, cst.Name) and node.value in words for node in script.nodes)


# ------------------------------------------------------------------------------------------------------------ the model


def _wrap(script: Script, target: str) -> None:
    """Initialize the process group, and wrap the model after the last line that creates it."""
    made = _made(script, target)
    if not made:
        start = top_statement(script)
        if start is not None:
            fix = "give the variable of the model with -t, and its file with -m"
            script.todo(_head(start), f"no model is assigned to {target!r} here, so nothing is distributed", fix)
        return
    function = function_of(script, made[0])
    stop = _first_loop(script, target, made[0])
    made = [node for node in made if script.span(node)[0] < stop]
    model = _written(made[0], target)
    _unwrap_data_parallel(script, target)
    last = _end_of_all(script, made)
    moved = any(_MOVED.search(script.code(node)) for node in made)
    lines = [f"{model} = {_DDP}({model}{'' if moved else '.sdaa()'}, device_ids=[torch.sdaa.current_device()])"]
    insert_line(script, last, lines, False, RULE, "one replica per process, with averaged gradients")
    _begin(script, last)
    through_wrapper(script, target, function, script.span(last)[1])


def _made(script: Script, target: str) -> list[cst.SimpleStatementLine]:
    """Return the lines that create the model, in the function that trains it if several create one."""
    lines = [node for node in script.nodes if isinstance(node, cst.SimpleStatementLine)]
    made = [node for node in lines if _written(node, target) == target]
    made = made or [node for node in lines if _written(node, target)]
    places = list(dict.fromkeys(function_of(script, node) for node in made))
    if len(places) < 2:
        return made
    home = max(places, key=lambda place: _trains(script, place, [n for n in made if function_of(script, n) is place]))
    return [node for node in made if function_of(script, node) is home]


def _trains(script: Script, place: cst.FunctionDef | None, made: Sequence[cst.CSTNode]) -> tuple[int, ...]:
    """Return a score for a function, or the module, being the one that trains the model."""
    calls = [n for n in script.nodes if isinstance(n, cst.Call) and function_of(script, n) is place]
    names = {path_of(call.func).rpartition(".")[2] for call in calls}
    ends = isinstance(place, cst.FunctionDef) and any(
        isinstance(n, cst.Return) and function_of(script, n) is place and n.value is not None for n in script.nodes
    )
    moved = any(_MOVED.search(script.code(node)) for node in made)
    return (int("parameters" in names), int(not ends), int(moved or "backward" in names))


def _first_loop(script: Script, target: str, made: cst.CSTNode) -> int:
    """Return the offset of the first loop that uses the model; a model created after it is for something else."""
    begin = script.span(made)[0]
    for node in script.nodes:
        if isinstance(node, (cst.For, cst.While)) and script.span(node)[0] > begin:
            start, end = script.span(node)
            inside = (one for one in script.nodes if isinstance(one, cst.Name) and one.value == target)
            if any(start <= script.span(one)[0] < end for one in inside):
                return start
    return len(script.text)


def _end_of_all(script: Script, made: Sequence[cst.CSTNode]) -> cst.CSTNode:
    """Return the statement after which all given lines have run: the last one, or its enclosing statement."""
    block = next(one for one in _blocks(script, made[0]) if all(one in _blocks(script, node) for node in made))
    return next(one for one in (made[-1], *script.above(made[-1])) if script.parent(one) is block)


def _head(node: cst.CSTNode) -> cst.CSTNode:
    """Return a short node for a finding."""
    return node.name if isinstance(node, (cst.FunctionDef, cst.ClassDef)) else node


def _written(line: cst.CSTNode, target: str) -> str:
    """Return the model's expression in a line that binds or moves it, such as ``self.model``, or ""."""
    for small in line.body if isinstance(line, cst.SimpleStatementLine) else ():
        names: list[str] = []
        if isinstance(small, cst.Assign):
            names = [name for one in small.targets for name in _names(one.target)]
        elif isinstance(small, cst.AnnAssign) and small.value is not None:
            names = _names(small.target)
        elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            function = small.value.func
            if isinstance(function, cst.Attribute) and function.attr.value in ("cuda", "to", "half", "float", "double"):
                names = [path_of(function.value)]
        for name in names:
            if name == target or name.endswith(f".{target}"):
                return name
    return ""


def _names(node: cst.CSTNode) -> list[str]:
    if isinstance(node, (cst.Tuple, cst.List)):
        return [name for element in node.elements for name in _names(element.value)]
    return [path_of(node)]


def _blocks(script: Script, node: cst.CSTNode) -> list[cst.CSTNode]:
    return [one for one in script.above(node) if isinstance(one, (cst.IndentedBlock, cst.Module))]


def _begin(script: Script, before: cst.CSTNode) -> None:
    """Initialize the group at the start of the script, or before its first statement."""
    lines = [
        'torch.sdaa.set_device(int(os.environ.get("LOCAL_RANK", "0")))',
        'torch.distributed.init_process_group("tccl")',
        "atexit.register(torch.distributed.destroy_process_group)",
    ]
    why = "the card of this process, and the process group"
    guard = _started(script)
    sampled = any(edit.rule == RULE and _SAMPLER in edit.new and _at_top(script, edit.start) for edit in script.edits)
    if guard is not None and not sampled and not _at_top(script, script.span(before)[0], guard):
        if isinstance(guard.body, cst.IndentedBlock):
            insert_line(script, guard.body.body[0], lines, True, RULE, why)
        else:
            script.insert(script.span(guard.body)[0], "; ".join(lines) + "; ", RULE, why)
        return
    insert_line(script, _first_statement(script) or before, lines, True, RULE, why)


def _started(script: Script) -> cst.If | None:
    """Return ``if __name__ == "__main__":`` of a module."""
    for statement in script.module.body:
        if isinstance(statement, cst.If) and "__name__" in script.code(statement.test):
            return statement
    return None


def _at_top(script: Script, offset: int, guard: cst.If | None = None) -> bool:
    """Return whether a position runs on import: outside of functions and of the main guard."""
    for statement in script.module.body:
        start, end = script.span(statement)
        if start <= offset < end:
            return statement is not (guard or _started(script)) and not isinstance(
                statement, (cst.FunctionDef, cst.ClassDef)
            )
    return False


def _first_statement(script: Script) -> cst.CSTNode | None:
    """Return the first statement after the first import of torch that is neither an import nor a definition."""
    start = top_statement(script)
    with_torch = [one for one in script.module.body if _imports(one) and re.search(r"\btorch", script.code(one))]
    start = with_torch[0] if with_torch else start
    past = False
    for statement in script.module.body:
        past = past or statement is start
        if past and not isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and not _imports(statement):
            return statement
    return None


def _imports(statement: cst.CSTNode) -> bool:
    """Return whether a statement only imports."""
    if isinstance(statement, cst.Try):
        return all(_imports(one) for one in statement.body.body)
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def _unwrap_data_parallel(script: Script, target: str) -> None:
    for node in script.nodes:
        if isinstance(node, cst.Call) and (script.dotted(node.func) or "").endswith(".DataParallel") and node.args:
            first = node.args[0].value
            if path_of(first) == target:
                script.replace(node, target, RULE, "DistributedDataParallel replaces DataParallel")
                span = script.span(node)
                script.findings[:] = [one for one in script.findings if not span[0] <= one.start < span[1]]


# ------------------------------------------------------------------------------------------------------- first process


def _hide_nothing(script: Script) -> None:
    """Make a line that selects one visible card conditional on a single process."""
    for node in script.nodes:
        if isinstance(node, cst.Assign) and re.match(
            r"os\.environ\[.CUDA_VISIBLE_DEVICES.\]", script.code(node.targets[0].target)
        ):
            line = script.parent(node)
            if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
                script.insert(
                    script.span(node)[0], 'if "RANK" not in os.environ: ', RULE, "each process has its own card"
                )
            else:
                fix = "remove it, and set SDAA_VISIBLE_DEVICES for the launcher"
                script.todo(node, "it hides the cards of the other processes", fix)


def _first_process(script: Script, main: bool) -> None:
    """Let only one process print and save."""
    for node in script.nodes:
        if isinstance(node, cst.Call) and _WRITERS.fullmatch(path_of(node.func)):
            script.todo(node.func, "every process writes this record", f"create it only if {FIRST}")
        if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
            if isinstance(node, cst.With):
                _written_file(script, node)
            continue
        name = script.dotted(node.value.func) or path_of(node.value.func)
        if main and _shows(name):
            _guard(script, node, node.value, "only one process prints")
        elif name in _SAVED or name.endswith(".save_pretrained") or (name in _COPIED and _saves(script, node)):
            _guard(script, node, None, "only one process saves")
        elif name in ("os.makedirs", "os.mkdir") and "exist_ok" not in script.code(node):
            script.todo(node, "several processes create this folder", "pass exist_ok=True")


def _saves(script: Script, node: cst.CSTNode) -> bool:
    """Return whether the function of a node also saves something."""
    home = function_of(script, node)
    calls = (one for one in script.nodes if isinstance(one, cst.Call) and function_of(script, one) is home)
    return any(script.dotted(call.func) in _SAVED for call in calls)


def _shows(name: str) -> bool:
    head, _, last = name.rpartition(".")
    return name == "print" or (
        last in _SHOWN and bool(_LOGGER.fullmatch(head.rpartition(".")[2] or "x") or head == "logging")
    )


def _written_file(script: Script, node: cst.With) -> None:
    for item in node.items:
        call = item.item
        if not isinstance(call, cst.Call) or path_of(call.func) != "open":
            continue
        modes = [arg.value for arg in call.args[1:] if arg.keyword is None or arg.keyword.value == "mode"]
        if modes and re.search(r"[wax]", script.code(modes[0])):
            script.todo(call, "every process writes this file", f"write it only if {FIRST}")


def _guard(script: Script, node: cst.Expr, shown: cst.Call | None, why: str) -> None:
    """Let one process run a call; its arguments are computed by all if they call functions of the script."""
    line = script.parent(node)
    start, end = script.span(node)
    if any(isinstance(one, cst.If) and "RANK" in script.code(one.test) for one in script.above(node)):
        return
    if shown is not None and _works(script, shown):
        first, last = script.span(shown.func)
        script.insert(first, "(", RULE, why)
        script.insert(last, f" if {FIRST} else lambda *_, **__: None)", RULE, why)
    elif isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        script.insert(start, f"if {FIRST}: ", RULE, why)
    else:
        script.insert(end, f" if {FIRST} else None", RULE, why)


def _works(script: Script, call: cst.Call) -> bool:
    """Return whether the arguments of a call may run the model, which all processes must do."""
    start, end = script.span(call)
    inside = (n for n in script.nodes if isinstance(n, cst.Call) and n is not call and start <= script.span(n)[0] < end)
    names = (n.func.attr.value if isinstance(n.func, cst.Attribute) else path_of(n.func) for n in inside)
    return not all(_PLAIN.fullmatch(name) for name in names)


def _need_os(script: Script) -> None:
    """Import the modules that inserted lines use, unless the script does so under the same name."""
    text = "".join(edit.new for edit in script.edits if edit.rule == RULE)
    wanted = [name for name in _modules(text) if not _bound(script, name)]
    start = top_statement(script)
    if wanted and start is not None:
        insert_line(script, start, [f"import {name}" for name in wanted], True, RULE, "for the inserted lines")


def _modules(text: str) -> Iterator[str]:
    if "atexit." in text:
        yield "atexit"
    if "os.environ" in text:
        yield "os"
    for name in ("torch.distributed", "torch.utils.data.distributed"):
        if f"{name}." in text:
            yield name
    if "torch." in text:
        yield "torch"


def _bound(script: Script, name: str) -> bool:
    """Return whether a module imports a package under its own name at the top level."""
    for statement in script.module.body:
        small: Sequence[cst.CSTNode] = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        for one in small:
            if isinstance(one, cst.Import):
                plain = [path_of(alias.name) for alias in one.names if alias.asname is None]
                if name in plain:
                    return True
    return False
