"""Data of several processes: a DistributedSampler for every shuffling loader, and its epochs."""

from __future__ import annotations

import re

import libcst as cst

from transplant.placing import insert_line
from transplant.script import Script, path_of

RULE = "several cards"
LOADER = "torch.utils.data.DataLoader"
SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_EVALUATION = re.compile(r"(?i)(^|[_.])(test|val|valid|validation|eval|dev)(ing)?([_.]|loader|data|dl|set|$)")
"""Names of loaders whose results are computed over the whole data set."""

_HELD = "msft_dataset"
"""Variable for a data set that is created in the call of its loader."""


def share_data(script: Script) -> None:
    """Give each process a share of shuffled data; loaders in fixed order, such as for evaluation, are unchanged."""
    for node in script.nodes:
        if not isinstance(node, cst.Call) or not _is_loader(script.dotted(node.func)):
            continue
        given = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
        if _EVALUATION.search(_name_of(script, node)):
            script.keep(node.func, "its name indicates evaluation: each process reads all of it")
            continue
        if "sampler" in given or "batch_sampler" in given:
            script.todo(
                node.func,
                "this loader has its own sampler",
                f"let it draw a different share in each process ({SAMPLER})",
            )
        elif "shuffle" not in given and any(arg.star for arg in node.args):
            _at_run_time(script, node, given)
        elif "shuffle" in given or (len(node.args) > 2 and node.args[2].keyword is None):
            _shuffled(script, node, given)


def _is_loader(name: str | None) -> bool:
    return name in (LOADER, "torch.utils.data.dataloader.DataLoader")


def _shuffled(script: Script, node: cst.Call, given: dict[str, cst.Arg]) -> None:
    """Replace ``shuffle`` by a sampler."""
    arg = given.get("shuffle") or node.args[2]
    shuffle = script.code(arg.value)
    if shuffle in ("False", "None"):
        return
    data = given.get("dataset") or (node.args[0] if node.args and node.args[0].keyword is None else None)
    if data is None:
        return
    behind = [one for one in node.args[3:] if one.keyword is None and not one.star] if arg.keyword is None else []
    if behind:
        fix = f"pass sampler={SAMPLER}(dataset) as a keyword, without shuffle"
        script.todo(node.func, "its arguments after shuffle are positional", fix)
        return
    words, name = script.code(data.value), path_of(data.value)
    if not name:
        inside = any(isinstance(one, (cst.ClassDef, cst.GeneratorExp, cst.ListComp)) for one in script.above(node))
        if inside and not any(isinstance(one, cst.FunctionDef) for one in script.above(node)):
            script.todo(
                node.func,
                "its data set is created in the call",
                f"assign it to a variable, and pass sampler={SAMPLER}(it)",
            )
            return
        held = f"({_HELD} := {words})"
        _around(script, data.value, f"({_HELD} := ", ")")
        words = _HELD
        if script.span(arg)[0] < script.span(data)[0]:
            words = held
    more = "" if shuffle == "True" else f", shuffle={shuffle}"
    start = script.span(arg.keyword or arg.value)[0]
    script.edit(start, script.span(arg.value)[1], f"sampler={SAMPLER}({words}{more})", RULE, "a share for each process")
    _follow(script, node, True)


def _at_run_time(script: Script, node: cst.Call, given: dict[str, cst.Arg]) -> None:
    """Share the data of a loader with a dictionary of arguments, if that requests shuffling."""
    stars = [arg for arg in node.args if arg.star]
    data = given.get("dataset") or (node.args[0] if node.args and not node.args[0].keyword else None)
    if len(stars) != 1 or stars[0].star != "**" or not path_of(stars[0].value) or data is None or data.star:
        fix = f"pass sampler={SAMPLER}(dataset) instead of shuffle"
        script.todo(node.func, "the arguments of this loader are created at run time", fix)
        return
    words, held = script.code(stars[0].value), script.code(data.value)
    if not path_of(data.value):
        _around(script, data.value, f"({_HELD} := ", ")")
        held = _HELD
    sampler = f'{{**{words}, "shuffle": None, "sampler": {SAMPLER}({held})}}'
    new = f'({sampler} if {words}.get("shuffle") else {words})'
    script.replace(stars[0].value, new, RULE, "a share for each process, if it shuffles")
    _follow(script, node, False)


def _around(script: Script, node: cst.CSTNode, before: str, after: str) -> None:
    start, end = script.span(node)
    script.insert(start, before, RULE, "the sampler also needs the data set")
    script.insert(end, after, RULE, "the sampler also needs the data set")


def _follow(script: Script, node: cst.Call, sure: bool) -> None:
    """Call ``set_epoch`` in every epoch; add a finding if no loop over epochs is found."""
    name = _name_of(script, node)
    if name and not _each_epoch(script, name, sure):
        fix = f"call {name}.sampler.set_epoch(epoch) at the start of every epoch"
        script.todo(node.func, "no loop over epochs that uses this loader was found", fix)
    elif not name:
        fix = "call loader.sampler.set_epoch(epoch) at the start of every epoch"
        script.todo(node.func, "this loader is not assigned to a variable", fix)


def _name_of(script: Script, node: cst.Call) -> str:
    """Return the variable of a loader, or ""."""
    for above in script.above(node):
        if isinstance(above, cst.Assign) and above.value is node:
            return script.code(above.targets[0].target)
        if isinstance(above, cst.BaseStatement):
            break
    return ""


def _each_epoch(script: Script, name: str, sure: bool) -> bool:
    """Call ``set_epoch`` in all loops over epochs that use the loader; return whether there is one.

    Args:
        sure: whether the loader always has the sampler.
    """
    found = False
    for node in script.nodes:
        if (
            not isinstance(node, cst.For)
            or not isinstance(node.target, cst.Name)
            or not isinstance(node.body, cst.IndentedBlock)
        ):
            continue
        counts = isinstance(node.iter, cst.Call) and ("range" in script.code(node.iter) or "epoch" in node.target.value)
        first = node.body.body[0]
        if counts and f"{name}" in _uses(script, node) and not _is_inner(script, node, name):
            call = f"{name}.sampler.set_epoch" if sure else f'getattr({name}.sampler, "set_epoch", int)'
            insert_line(script, first, [f"{call}({node.target.value})"], True, RULE, "another order in every epoch")
            found = True
    return found


def _uses(script: Script, loop: cst.For) -> set[str]:
    """Return the names and attributes that a loop's body uses."""
    start, end = script.span(loop.body)
    inside = (node for node in script.nodes if isinstance(node, (cst.Name, cst.Attribute)))
    return {script.code(node) for node in inside if start <= script.span(node)[0] < end}


def _is_inner(script: Script, loop: cst.For, name: str) -> bool:
    """Return whether a loop is inside another counting loop."""
    return any(
        isinstance(above, cst.For) and isinstance(above.iter, cst.Call) and "range" in script.code(above.iter)
        for above in script.above(loop)
    )
