"""How several processes share the data: a DistributedSampler for every loader that shuffles, and its epochs."""

from __future__ import annotations

import libcst as cst

from transplant.placing import insert_line
from transplant.script import Script, path_of

RULE = "several cards"
LOADER = "torch.utils.data.DataLoader"
_SAMPLER = "torch.utils.data.distributed.DistributedSampler"
_HELD = "msft_dataset"
"""The name that holds a data set which is made in the call of its loader."""


def share_data(script: Script) -> None:
    """Give each process its share of what is shuffled; loaders in a fixed order, such as for evaluation, stay whole."""
    shared: list[str] = []
    for node in script.nodes:
        if not isinstance(node, cst.Call) or not _is_loader(script.dotted(node.func)):
            continue
        given = {arg.keyword.value: arg for arg in node.args if arg.keyword is not None}
        if "sampler" in given or "batch_sampler" in given:
            script.todo(
                node.func,
                "this loader has a sampler of its own",
                f"make it draw a share of its own in each process ({_SAMPLER})",
            )
        elif any(arg.star for arg in node.args):
            script.todo(
                node.func,
                "the arguments of this loader are made at run time",
                f"give it sampler={_SAMPLER}(dataset), not shuffle",
            )
        elif "shuffle" in given or (len(node.args) > 2 and node.args[2].keyword is None):
            shared += _shuffled(script, node, given)
    for name in dict.fromkeys(shared):
        _each_epoch(script, name)


def _is_loader(name: str | None) -> bool:
    return name in (LOADER, "torch.utils.data.dataloader.DataLoader")


def _shuffled(script: Script, node: cst.Call, given: dict[str, cst.Arg]) -> list[str]:
    """Put a sampler in the place of ``shuffle``; return the variable of the loader."""
    arg = given.get("shuffle") or node.args[2]
    shuffle = script.code(arg.value)
    if shuffle in ("False", "None"):
        return []
    data = given.get("dataset") or (node.args[0] if node.args and node.args[0].keyword is None else None)
    if data is None:
        return []
    words, name = script.code(data.value), path_of(data.value)
    if not name:
        inside = any(isinstance(one, (cst.ClassDef, cst.GeneratorExp, cst.ListComp)) for one in script.above(node))
        if inside and not any(isinstance(one, cst.FunctionDef) for one in script.above(node)):
            script.todo(
                node.func, "its data set is made inside the call", f"name the data set, and give sampler={_SAMPLER}(it)"
            )
            return []
        held = f"({_HELD} := {words})"
        _around(script, data.value, f"({_HELD} := ", ")")
        words = _HELD
        if script.span(arg)[0] < script.span(data)[0]:
            words = held
    more = "" if shuffle == "True" else f", shuffle={shuffle}"
    start = script.span(arg.keyword or arg.value)[0]
    script.edit(
        start, script.span(arg.value)[1], f"sampler={_SAMPLER}({words}{more})", RULE, "a share for each process"
    )
    if arg.keyword is None:
        script.todo(node.func, "shuffle is given by its place", "see whether the arguments behind it still fit")
    return _variable(script, node)


def _around(script: Script, node: cst.CSTNode, before: str, after: str) -> None:
    start, end = script.span(node)
    script.insert(start, before, RULE, "the sampler needs the data set too")
    script.insert(end, after, RULE, "the sampler needs the data set too")


def _variable(script: Script, node: cst.Call) -> list[str]:
    for above in script.above(node):
        if isinstance(above, cst.Assign) and above.value is node:
            return [script.code(above.targets[0].target)]
        if isinstance(above, cst.BaseStatement):
            break
    fix = "call loader.sampler.set_epoch(epoch) at the start of every epoch"
    script.todo(node.func, "this loader has no variable whose epochs could be followed", fix)
    return []


def _each_epoch(script: Script, name: str) -> None:
    """Draw another order in every epoch, in all loops that count epochs and use the loader."""
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
            line = f"{name}.sampler.set_epoch({node.target.value})"
            insert_line(script, first, [line], True, RULE, "another order in every epoch")
            found = True
    if not found:
        for node in script.nodes:
            if isinstance(node, (cst.Name, cst.Attribute)) and script.code(node) == name:
                fix = f"call {name}.sampler.set_epoch(epoch) at the start of every epoch"
                script.todo(node, "no loop over epochs that uses this loader was found", fix)
                break


def _uses(script: Script, loop: cst.For) -> set[str]:
    """Return the names and attributes that a loop's body uses."""
    start, end = script.span(loop.body)
    inside = (node for node in script.nodes if isinstance(node, (cst.Name, cst.Attribute)))
    return {script.code(node) for node in inside if start <= script.span(node)[0] < end}


def _is_inner(script: Script, loop: cst.For, name: str) -> bool:
    """Return whether a loop stands in another one that counts too."""
    return any(
        isinstance(above, cst.For) and isinstance(above.iter, cst.Call) and "range" in script.code(above.iter)
        for above in script.above(loop)
    )
