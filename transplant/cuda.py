"""Built-in rules for names: imports, ``torch.cuda``, methods and attributes of tensors, the profiler."""

from __future__ import annotations

import re

import libcst as cst

from transplant.devices import is_text
from transplant.names import CUDA, Names
from transplant.numbers import take_current
from transplant.script import Script, module_path, path_of

CUDA_WORD = re.compile(r"(?i)cuda|nccl")
"""Pattern of names and strings to process."""

_MODULE, _METHOD, _IMPORT = "torch.cuda", "device method", "import"
_RENAMED = {
    "torch.distributed.Backend.NCCL": ("TCCL", "the card's backend"),
    "torch.profiler.ProfilerActivity.CUDA": ("PrivateUse1", "the profiler's name for the card"),
}
_TIMES = re.compile(r"(self_)?cuda_(time(_total|_str|_total_str)?|memory_usage)")
_OWN_FLAG = re.compile(
    r"(?i)(^|\.)(args?|opts?|options?|cfg|conf|config|flags|params|hparams|self|settings|FLAGS|parser)$"
)
_TORCH_TYPE = (
    "torch.Tensor",
    "torch.nn.",
    "torch.FloatTensor",
    "torch.autograd",
    "torch.storage",
    "torch.UntypedStorage",
)


def rewrite_names(script: Script, table: Names, similar: bool, no_index: str = "") -> None:
    """Add edits and findings for every name of a script.

    Args:
        script: receives the edits and findings. table: of names. similar: whether ``-sim`` was given.
        no_index: which devices become the current one: ``FIXED`` numbers, or ``EVERY`` one; empty: none.
    """
    stored = _stored(script)
    for node in script.nodes:
        if isinstance(node, cst.ImportFrom):
            _from_import(script, node, table, similar)
        elif isinstance(node, cst.Import):
            _plain_import(script, node, table)
        elif isinstance(node, cst.Attribute):
            _attribute(script, node, table, stored, similar)
        elif isinstance(node, cst.Name):
            _bare_name(script, node, table, similar)
        elif isinstance(node, cst.FunctionDef):
            _own_method(script, node)
        elif isinstance(node, cst.Call):
            _call(script, node)
            if no_index:
                take_current(script, node, no_index)


def leave_names(script: Script) -> None:
    """Add findings for other names with CUDA's word, which remain unchanged."""
    for node in script.nodes:
        if not isinstance(node, cst.Name) or not CUDA_WORD.search(node.value) or script.taken(*script.span(node)):
            continue
        if script.has_finding(*script.span(node)):
            continue
        if node.value == "CUDA_VISIBLE_DEVICES":
            _variable(script, node)
        else:
            script.keep(node, "a name of the script or of another package")


def _variable(script: Script, node: cst.Name) -> None:
    """Rename the variable if it is a keyword argument that sets it for a process."""
    arg = script.parent(node)
    call = script.parent(arg) if isinstance(arg, cst.Arg) and arg.keyword is node else None
    if call is not None and re.search(r"environ|env\b", script.code(call)):
        script.replace(node, "SDAA_VISIBLE_DEVICES", "variable", "selects the visible devices")
    elif call is not None:
        script.todo(node, "the variable of CUDA's devices", "use SDAA_VISIBLE_DEVICES for the card")
    else:
        script.keep(node, "a name of the script")


def _stored(script: Script) -> set[str]:
    """Return the attributes that a script sets, such as ``self.is_cuda``."""
    found = set()
    for node in script.nodes:
        targets = [one.target for one in node.targets] if isinstance(node, cst.Assign) else []
        targets += [node.target] if isinstance(node, (cst.AnnAssign, cst.AugAssign)) else []
        found |= {script.code(target) for target in targets if isinstance(target, cst.Attribute)}
    return found


# ------------------------------------------------------------------------------------------------------------- imports


def _plain_import(script: Script, node: cst.Import, table: Names) -> None:
    for alias in node.names:
        name = path_of(alias.name)
        if name == CUDA or name.startswith(f"{CUDA}."):
            _module_name(script, alias.name, name, table)
        elif table.of_package(name):
            script.todo_once(alias, table.reason(name), table.of_package(name) or "")


def _module_name(script: Script, node: cst.CSTNode, name: str, table: Names) -> None:
    """Change the middle word of ``torch.cuda.NAME``, or add a finding if the card has no such module."""
    why = table.lacking(name)
    if why:
        script.todo(node, f"torch.sdaa has no {name.removeprefix(f'{CUDA}.')}", why)
        return
    while isinstance(node, cst.Attribute) and path_of(node) != CUDA:
        node = node.value
    if isinstance(node, cst.Attribute):
        script.replace(node.attr, "sdaa", _IMPORT, f"torch.sdaa replaces {name}")


def _from_import(script: Script, node: cst.ImportFrom, table: Names, similar: bool) -> None:
    module = module_path(node)
    if module == "__future__" or module.startswith("."):
        return
    if isinstance(node.names, cst.ImportStar):
        if module == CUDA or module.startswith(f"{CUDA}."):
            _module_name(script, node.module or node, module, table)
        return
    moved = [(alias, _moved(f"{module}.{path_of(alias.name)}", table, similar)) for alias in node.names]
    for alias, target in moved:
        if target is None:
            _report(script, alias, f"{module}.{path_of(alias.name)}", table)
    changed = [alias for alias, target in moved if target]
    if not changed:
        return
    if module == "torch" or len({(t or "").rpartition(".")[0] for _, t in moved}) == 1:
        _in_place(script, node, moved)
        return
    _in_parts(script, node, moved, module)


def _moved(name: str, table: Names, similar: bool) -> str | None:
    """Return the name on the card, or ``None`` if it stays."""
    if similar and name in table.similar:
        return table.similar[name]
    if name == CUDA or (name.startswith(f"{CUDA}.") and not table.lacking(name)):
        return f"torch.sdaa{name.removeprefix(CUDA)}"
    return None


def _report(script: Script, node: cst.CSTNode, name: str, table: Names) -> None:
    """Add a finding for an imported name that the card lacks."""
    if name.startswith(f"{CUDA}."):
        script.todo(node, f"torch.sdaa has no {name.removeprefix(f'{CUDA}.')}", table.lacking(name) or "")
        return
    fix = table.of_package(name) or _elsewhere(name, table)
    if fix and not (name.startswith("torch.") and table.of_harmless(name)):
        script.todo_once(node, table.reason(name), fix)


def _elsewhere(name: str, table: Names) -> str | None:
    fix = table.of_elsewhere(name)
    general = fix in (table.elsewhere["torch"], table.elsewhere["torch._C"])
    return None if general and not CUDA_WORD.search(name) else fix


def _in_place(script: Script, node: cst.ImportFrom, moved: list[tuple[cst.ImportAlias, str | None]]) -> None:
    """Change words of a statement: the module or the names."""
    for alias, target in moved:
        if not target:
            continue
        module, _, name = target.rpartition(".")
        if name != path_of(alias.name):
            new = name if alias.asname or name == "sdaa" else f"{name} as {path_of(alias.name)}"
            script.replace(alias.name, new, _IMPORT, f"{target} for the card")
        if node.module is not None and module != module_path(node):
            _new_module(script, node.module, module)


def _new_module(script: Script, written: cst.CSTNode, module: str) -> None:
    """Change a module's name; for ``torch.cuda`` only the differing word."""
    inner = written
    while isinstance(inner, cst.Attribute) and path_of(inner) != CUDA:
        inner = inner.value
    if isinstance(inner, cst.Attribute):
        script.replace(inner.attr, "sdaa", _IMPORT, "torch.sdaa replaces torch.cuda")
    else:
        script.replace(written, module, _IMPORT, f"replaced by {module}")


def _in_parts(
    script: Script, node: cst.ImportFrom, moved: list[tuple[cst.ImportAlias, str | None]], module: str
) -> None:
    """Split a statement whose names go to different modules."""
    parts: dict[str, list[str]] = {}
    for alias, target in moved:
        old = path_of(alias.name)
        where, _, name = target.rpartition(".") if target else (module, "", old)
        bound = alias.evaluated_alias or old
        parts.setdefault(where, []).append(name if name == bound else f"{name} as {bound}")
    text = "; ".join(f"from {where} import {', '.join(names)}" for where, names in parts.items())
    notes = re.findall(r"#[^\r\n]*", script.code(node))
    if notes:  # comments inside the brackets; a following statement on the line would be commented out
        line = script.parent(node)
        if not isinstance(line, cst.SimpleStatementLine) or line.body[-1] is not node:
            script.todo(node, "its names belong to the card and to CUDA", "split it into two statements")
            return
        text += "".join(f"  {note.rstrip()}" for note in notes)
    script.replace(node, text, _IMPORT, "names of the card are imported from torch.sdaa, the others as before")


# --------------------------------------------------------------------------------------------------- names, attributes


def _attribute(script: Script, node: cst.Attribute, table: Names, stored: set[str], similar: bool) -> None:
    around = script.parent(node)
    if isinstance(around, cst.Attribute) and around.value is node:
        return  # only whole chains of names are processed
    if any(isinstance(one, (cst.ImportAlias, cst.ImportFrom, cst.Import)) for one in script.above(node)):
        return
    name = script.dotted(node)
    if name is not None and _known(script, node, name, table, similar):
        return
    below: cst.BaseExpression = node
    while isinstance(below, cst.Attribute):
        if CUDA_WORD.search(below.attr.value):
            _member(script, below, script.dotted(below.value), stored)
        below = below.value


def _known(script: Script, node: cst.Attribute, name: str, table: Names, similar: bool) -> bool:
    """Process a chain of names that begins at an import; return whether it is finished."""
    if similar and name in table.similar:
        return script.replace(node, table.similar[name], "similar", f"replaces {name}; results differ")
    if name == CUDA or name.startswith(f"{CUDA}."):
        why = table.lacking(name)
        if why:
            script.todo(node, f"torch.sdaa has no {name.removeprefix(f'{CUDA}.')}", why)
            return True
        return _torch_cuda(script, node, name)
    new = next(((old, *words) for old, words in _RENAMED.items() if name.endswith(old.removeprefix("torch."))), None)
    if new and name.startswith("torch."):
        return script.replace(node.attr, new[1], "constant", new[2])
    if table.of_harmless(name):
        if CUDA_WORD.search(name):
            script.keep(node, table.of_harmless(name) or "")
        return True
    if name.startswith(_TORCH_TYPE) and node.attr.value in ("cuda", "is_cuda"):
        return False
    if name == "torch.distributed.is_nccl_available":
        return _is_available(script, node)
    return _foreign(script, node, name, table)


def _foreign(script: Script, node: cst.Attribute, name: str, table: Names) -> bool:
    if table.of_package(name):
        return not CUDA_WORD.search(name)  # its import has a finding
    fix = _elsewhere(name, table)
    if fix is None:
        return False
    script.todo(node, f"{name} does not run on the card", fix)
    return True


def _torch_cuda(script: Script, node: cst.CSTNode, name: str) -> bool:
    """Change the word ``cuda`` of a chain, unless it is in an alias, whose definition is changed."""
    while isinstance(node, cst.Attribute):
        if script.dotted(node) == CUDA:
            script.replace(node.attr, "sdaa", _MODULE, f"torch.sdaa{name.removeprefix(CUDA)} replaces {name}")
            return True
        node = node.value
    return True


def _is_available(script: Script, node: cst.Attribute) -> bool:
    around = script.parent(node)
    if not isinstance(around, cst.Call) or around.args:
        return False
    new = f'{script.code(node.value)}.is_backend_available("tccl")'
    return script.replace(around, new, "backend", "tccl is the card's backend")


def _member(script: Script, node: cst.Attribute, base: str | None, stored: set[str]) -> None:
    """Process ``.cuda``, ``.is_cuda`` etc. of an object of unknown type."""
    name, around = node.attr.value, script.parent(node)
    called = isinstance(around, cst.Call) and around.func is node
    own = script.code(node) in stored
    foreign = base is not None and not base.startswith("torch")
    if name in ("cuda", "is_cuda") and not own and not foreign and _in_torchscript(script, node):
        _member_in_torchscript(script, node)
    elif name == "cuda" and not foreign and (called or (base or "").startswith(_TORCH_TYPE)):
        script.replace(node.attr, "sdaa", _METHOD, "moves to the card")
    elif name == "cuda" and not own and not called and not foreign:
        if _OWN_FLAG.search(script.code(node.value)):
            script.keep(node.attr, "a flag or an attribute of the script")
        else:
            script.todo(node.attr, "it is not called here", "if it is a method of a tensor or module, use sdaa")
    elif name == "is_cuda" and not own and not foreign:
        script.replace(node.attr, "is_sdaa", _METHOD, "whether it is on the card")
    elif _TIMES.fullmatch(name) and not own:
        script.replace(node.attr, name.replace("cuda", "device"), "profiler", "the profiler's name for any device")


def _in_torchscript(script: Script, node: cst.CSTNode) -> bool:
    """Return whether a node is in a function or class compiled by ``torch.jit.script``, which lacks ``.sdaa``."""
    is_cuda = isinstance(node, cst.Attribute) and node.attr.value == "is_cuda"
    for around in script.above(node):
        if isinstance(around, (cst.FunctionDef, cst.ClassDef)) and any(
            (script.dotted(each.decorator) or "").startswith("torch.jit.script") for each in around.decorators
        ):
            return True
        if is_cuda and isinstance(around, cst.ClassDef) and "jit.script(" in script.text:
            return True  # a module that may be compiled; the replacement also works in plain Python
    return False


def _member_in_torchscript(script: Script, node: cst.Attribute) -> None:
    around = script.parent(node)
    if node.attr.value == "is_cuda":
        why = "whether it is on the card, for TorchScript"
        script.insert(script.span(node)[0], "(", _METHOD, why)
        script.replace(node.attr, 'device.type == "sdaa")', _METHOD, why)
    elif isinstance(around, cst.Call) and around.func is node and not around.args:
        why = "moves to the card, for TorchScript"
        script.replace(node.attr, "to", _METHOD, why)
        script.insert(script.span(around)[1] - 1, '"sdaa"', _METHOD, why)
    else:
        script.todo(node.attr, "TorchScript has no .sdaa", 'use .to("sdaa") if it moves to the card')


def _bare_name(script: Script, node: cst.Name, table: Names, similar: bool) -> None:
    """Process names bound by ``from torch import cuda``, and add findings for names that the card lacks."""
    around = script.parent(node)
    if isinstance(around, (cst.ImportAlias, cst.AsName, cst.Attribute, cst.Arg)) and not _used(around, node):
        return
    if not script.is_imported(node):
        return
    bound = [getattr(one, "node", None) for one in script.bindings(node)]
    name = script.dotted(node)
    if name == CUDA and node.value == "cuda" and not _aliased(bound, node.value):
        script.replace(node, "sdaa", _MODULE, "torch.sdaa replaces torch.cuda")
    elif name == "torch.distributed.is_nccl_available":
        script.todo(node, "it exists for CUDA only", 'use torch.distributed.is_backend_available("tccl")')
    elif name and name != CUDA and not (similar and name in table.similar):
        fix = table.lacking(name) if name.startswith(f"{CUDA}.") else None
        fix = fix or (_elsewhere(name, table) if name.startswith("torch.nn.") else None)
        if fix:
            script.todo(node, f"{name} does not run on the card", fix)


def _used(around: cst.CSTNode, node: cst.Name) -> bool:
    """Return whether a name inside another node is a reference, not a label."""
    if isinstance(around, cst.Attribute):
        return around.value is node
    return isinstance(around, cst.Arg) and around.value is node


def _aliased(bound: list[object], name: str) -> bool:
    imports = [one for one in bound if isinstance(one, (cst.Import, cst.ImportFrom))]
    aliases = [alias for one in imports if not isinstance(one.names, cst.ImportStar) for alias in one.names]
    return any(alias.asname and alias.evaluated_alias == name for alias in aliases)


def _own_method(script: Script, node: cst.FunctionDef) -> None:
    """Rename ``def cuda`` and ``def is_cuda`` of a class, whose calls are renamed too."""
    function = next((one for one in script.above(node) if isinstance(one, (cst.FunctionDef, cst.ClassDef))), None)
    if node.name.value in ("cuda", "is_cuda") and isinstance(function, cst.ClassDef):
        script.replace(node.name, node.name.value.replace("cuda", "sdaa"), _METHOD, "its calls are renamed too")


def _call(script: Script, node: cst.Call) -> None:
    """Change ``use_cuda=`` of the profiler, and add findings for names created at run time."""
    name = script.dotted(node.func) or path_of(node.func)
    if name in ("getattr", "hasattr", "setattr", "delattr") and len(node.args) > 1:
        word = node.args[1].value
        if isinstance(word, cst.SimpleString) and CUDA_WORD.search(word.value) and not is_text(script, word):
            script.todo(node, "the name is looked up at run time", "check its purpose, and use sdaa for the card")
    if not name.startswith(("torch.autograd.profiler.", "torch.profiler.")):
        return
    for arg in node.args:
        if arg.keyword is None or arg.keyword.value != "use_cuda":
            continue
        value = script.code(arg.value)
        new = {"True": '"sdaa"', "False": "None"}.get(value, f'"sdaa" if {value} else None')
        span = (script.span(arg.keyword)[0], script.span(arg.value)[1])
        script.edit(*span, f"use_device={new}", "profiler", "the profiler's name for any device")
