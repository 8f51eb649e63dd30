"""``distributed``: a script of one card becomes one for several, a process each, with DistributedDataParallel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import libcst as cst

from transplant.loaders import share_data
from transplant.placing import insert_line, top_statement
from transplant.script import Script, path_of

RULE = "several cards"
FIRST = 'os.environ.get("RANK", "0") == "0"'
"""True in one process of all; it holds before the group is there too."""

_LOGGER = re.compile(r"(?i)_?log(ger)?s?")
_SHOWN = frozenset({"debug", "info", "warning", "warn", "critical"})
_SAVED = frozenset({"torch.save", "numpy.save", "numpy.savez", "json.dump", "pickle.dump"})
_ON_MODEL = frozenset({"state_dict", "load_state_dict", "save_pretrained"})
_KNOWN = frozenset(
    [
        "parameters",
        "named_parameters",
        "buffers",
        "named_buffers",
        "modules",
        "named_modules",
        "children",
        "train",
        "eval",
        "zero_grad",
        "forward",
        "module",
        "no_sync",
        "to",
        "sdaa",
        "cpu",
        "half",
        "float",
        "double",
        "bfloat16",
        "requires_grad_",
        "training",
        "apply",
        "register_comm_hook",
        "join",
    ]
)
_DDP = "torch.nn.parallel.DistributedDataParallel"


def make_multi_card(script: Script, target: str, main: bool) -> None:
    """Make a script train on several cards.

    Args:
        script: gets the edits. target: the variable of the model. main: whether it is the script that is started.
    """
    before = len(script.edits)
    if _is_distributed(script):
        for node in script.nodes:
            if isinstance(node, cst.Call) and (script.dotted(node.func) or "").endswith("init_process_group"):
                script.todo(
                    node.func,
                    "the script starts several processes itself",
                    "start it as before, not with `distributed`",
                )
        return
    share_data(script)
    _first_process(script, main)
    if main:
        _wrap(script, target)
    if len(script.edits) > before:
        _need_os(script)


def _is_distributed(script: Script) -> bool:
    words = ("init_process_group", "DistributedDataParallel", "DistributedSampler")
    return any(isinstance(node, cst.Name) and node.value in words for node in script.nodes)


# ------------------------------------------------------------------------------------------------------------ the model


def _wrap(script: Script, target: str) -> None:
    """Start the group of processes, and wrap the model behind the last line that makes it."""
    made = [node for node in script.nodes if isinstance(node, cst.SimpleStatementLine) and _makes(script, node, target)]
    if not made:
        start = top_statement(script)
        if start is not None:
            fix = "name the variable of the model with -t, and its file with -m"
            script.todo(_head(start), f"no model is assigned to {target!r} here, so nothing is shared", fix)
        return
    function = _function(script, made[0])
    made = [node for node in made if _function(script, node) is function]
    stop = _first_loop(script, target, made[0])
    made = [node for node in made if script.span(node)[0] < stop]
    _unwrap_data_parallel(script, target)
    last = _end_of_all(script, made)
    lines = [f"{target} = {_DDP}({target}, device_ids=[torch.sdaa.current_device()])"]
    insert_line(script, last, lines, False, RULE, "one replica in each process, gradients averaged")
    _begin(script, function, last)
    _through_wrapper(script, target, function, script.span(last)[1])


def _first_loop(script: Script, target: str, made: cst.CSTNode) -> int:
    """Return where the first loop begins that uses the model: what makes one behind it is for something else."""
    begin = script.span(made)[0]
    for node in script.nodes:
        if isinstance(node, (cst.For, cst.While)) and script.span(node)[0] > begin:
            start, end = script.span(node)
            inside = (one for one in script.nodes if isinstance(one, cst.Name) and one.value == target)
            if any(start <= script.span(one)[0] < end for one in inside):
                return start
    return len(script.text)


def _end_of_all(script: Script, made: Sequence[cst.CSTNode]) -> cst.CSTNode:
    """Return the statement after which all of several lines have run: the last one, or what it stands in."""
    block = next(one for one in _blocks(script, made[0]) if all(one in _blocks(script, node) for node in made))
    return next(one for one in (made[-1], *script.above(made[-1])) if script.parent(one) is block)


def _head(node: cst.CSTNode) -> cst.CSTNode:
    """Return a short node to point at."""
    return node.name if isinstance(node, (cst.FunctionDef, cst.ClassDef)) else node


def _makes(script: Script, line: cst.SimpleStatementLine, target: str) -> bool:
    """Return whether a line binds the model, or changes it where it stands, such as ``model.cuda()``."""
    for small in line.body:
        if isinstance(small, cst.Assign):
            names = [name for one in small.targets for name in _names(one.target)]
            if target in names:
                return True
        elif isinstance(small, cst.AnnAssign) and small.value is not None and target in _names(small.target):
            return True
        elif isinstance(small, cst.Expr) and isinstance(small.value, cst.Call):
            function = small.value.func
            own = isinstance(function, cst.Attribute) and path_of(function.value) == target
            if own and path_of(function).endswith((".cuda", ".to", ".half", ".float", ".double")):
                return True
    return False


def _names(node: cst.CSTNode) -> list[str]:
    if isinstance(node, (cst.Tuple, cst.List)):
        return [name for element in node.elements for name in _names(element.value)]
    return [path_of(node)]


def _function(script: Script, node: cst.CSTNode) -> cst.FunctionDef | None:
    return next((one for one in script.above(node) if isinstance(one, cst.FunctionDef)), None)


def _blocks(script: Script, node: cst.CSTNode) -> list[cst.CSTNode]:
    return [one for one in script.above(node) if isinstance(one, (cst.IndentedBlock, cst.Module))]


def _begin(script: Script, function: cst.FunctionDef | None, before: cst.CSTNode) -> None:
    """Start the group first of all in the function that makes the model, or before the first line after the imports."""
    lines = [
        'torch.sdaa.set_device(int(os.environ.get("LOCAL_RANK", "0")))',
        'torch.distributed.init_process_group("tccl")',
        "atexit.register(torch.distributed.destroy_process_group)",
    ]
    where = _first_statement(script, function)
    insert_line(script, where or before, lines, True, RULE, "this process's card, and the group of all processes")


def _first_statement(script: Script, function: cst.FunctionDef | None) -> cst.CSTNode | None:
    """Return what runs first: in a function after its documentation, in a module after its imports and definitions."""
    if function is not None:
        body = function.body.body
        small = body[0].body[0] if isinstance(body[0], cst.SimpleStatementLine) else None
        told = isinstance(small, cst.Expr) and isinstance(small.value, (cst.SimpleString, cst.ConcatenatedString))
        return body[1] if told and len(body) > 1 else body[0]
    start = top_statement(script)
    past = False
    for statement in script.module.body:
        past = past or statement is start
        if past and not isinstance(statement, (cst.FunctionDef, cst.ClassDef)) and not _imports(statement):
            return statement
    return None


def _imports(statement: cst.CSTNode) -> bool:
    """Return whether a statement does nothing but import."""
    if isinstance(statement, cst.Try):
        return all(_imports(one) for one in statement.body.body)
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def _through_wrapper(script: Script, target: str, function: cst.FunctionDef | None, start: int) -> None:
    """Reach the model's own members through the wrapper, so that saved names are those of one card."""
    for node in script.nodes:
        if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name) or node.value.value != target:
            continue
        home, name = _function(script, node), node.attr.value
        if home is function and script.span(node)[0] >= start and name not in _KNOWN:
            around = script.parent(node)
            if name in _ON_MODEL or not (isinstance(around, cst.AssignTarget)):
                script.replace(node.value, f"{target}.module", RULE, "the model inside its wrapper")
        elif home is not function and name in _ON_MODEL:
            script.replace(node.value, f'getattr({target}, "module", {target})', RULE, "the model inside its wrapper")


def _unwrap_data_parallel(script: Script, target: str) -> None:
    for node in script.nodes:
        if isinstance(node, cst.Call) and (script.dotted(node.func) or "").endswith(".DataParallel") and node.args:
            first = node.args[0].value
            if path_of(first) == target:
                script.replace(node, target, RULE, "DistributedDataParallel takes the place of DataParallel")
                span = script.span(node)
                script.findings[:] = [one for one in script.findings if not span[0] <= one.start < span[1]]


# ------------------------------------------------------------------------------------------------ what one process does


def _first_process(script: Script, main: bool) -> None:
    """Let one process print and save."""
    for node in script.nodes:
        if not isinstance(node, cst.Expr) or not isinstance(node.value, cst.Call):
            if isinstance(node, cst.With):
                _written_file(script, node)
            continue
        name = script.dotted(node.value.func) or path_of(node.value.func)
        if (main and _shows(name)) or name in _SAVED or name.endswith(".save_pretrained"):
            _guard(script, node, "one process shows it" if _shows(name) else "one process saves it")
        elif name in ("os.makedirs", "os.mkdir") and "exist_ok" not in script.code(node):
            script.todo(node, "several processes make this folder", "give it exist_ok=True")


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
            script.todo(call, "every process writes this file", f"write it where {FIRST}")


def _guard(script: Script, node: cst.Expr, why: str) -> None:
    line = script.parent(node)
    start, end = script.span(node)
    if any(isinstance(one, cst.If) and "RANK" in script.code(one.test) for one in script.above(node)):
        return
    if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1:
        script.insert(start, f"if {FIRST}: ", RULE, why)
    else:
        script.insert(end, f" if {FIRST} else None", RULE, why)


def _need_os(script: Script) -> None:
    """Import what the inserted lines use, unless the script does so under the same name."""
    text = "".join(edit.new for edit in script.edits if edit.rule == RULE)
    wanted = [name for name in _modules(text) if not _bound(script, name)]
    start = top_statement(script)
    if wanted and start is not None:
        insert_line(script, start, [f"import {name}" for name in wanted], True, RULE, "for the lines that are new")


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
    """Return whether a module imports a package under its own name, and does so outside of functions and branches."""
    for statement in script.module.body:
        small: Sequence[cst.CSTNode] = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
        for one in small:
            if isinstance(one, cst.Import):
                plain = [path_of(alias.name) for alias in one.names if alias.asname is None]
                if name in plain:
                    return True
    return False
