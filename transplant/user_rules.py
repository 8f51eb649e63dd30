"""Rules of the user in a JSON file: other arguments, function names and module names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst

from engine import ConfigError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import did_you_mean, shown_value
from transplant.script import Script, module_path, path_of

ARGS, FUNCTION, MODULE = "ArgsModifyRule", "FuncNameModifyRule", "ModuleNameModifyRule"
FIELDS: dict[str, dict[str, type]] = {
    ARGS: {"func_name": str, "arg_idx": int, "arg_new": str},
    FUNCTION: {"old_name": str, "new_name": str},
    MODULE: {"old_name": str, "new_name": str, "parent_module": str},
}
"""Fields of each kind of rule, with their types; ``parent_module`` is optional."""

_MOST = 1 << 20
_EXAMPLE = '{"rules": {"FuncNameModifyRule": [{"old_name": "f", "new_name": "g"}]}}'


@dataclass(frozen=True, slots=True)
class UserRules:
    """Rules by kind, and a message for each invalid one."""

    rules: Mapping[str, list[dict[str, Any]]] = field(default_factory=dict)
    wrong: tuple[str, ...] = ()


def read_rules(file: Path) -> UserRules:
    """Read a file of rules; invalid rules are skipped and reported.

    Raises:
        ConfigError: the file cannot be read, or does not contain rules in JSON.
    """
    try:
        found = json.loads(read_regular(file, _MOST).decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"--rule {file} cannot be read: {error.strerror or error}; give a JSON file") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--rule {file} is not JSON ({error}); example: {_EXAMPLE}") from error
    rules = found.get("rules") if isinstance(found, dict) else None
    if not isinstance(rules, dict):
        near = did_you_mean("rules", list(found)) if isinstance(found, dict) else ""
        raise ConfigError(f'--rule {file} has no "rules";{near} example: {_EXAMPLE}')
    good: dict[str, list[dict[str, Any]]] = {}
    wrong: list[str] = [f'{key!r} is ignored: only "rules" is read' for key in found if key != "rules"]
    for kind, entries in rules.items():
        if kind not in FIELDS:
            wrong.append(f"{kind!r} is not a kind of rule;{did_you_mean(kind, FIELDS)} kinds: {', '.join(FIELDS)}")
        elif not isinstance(entries, list):
            wrong.append(f"{kind} must be a list of rules, got {shown_value(entries)}")
        else:
            for number, entry in enumerate(entries):
                why = _fault(kind, entry)
                if why:
                    wrong.append(f"{kind}[{number}] {why}")
                else:
                    good.setdefault(kind, []).append(entry)
    return UserRules(good, tuple(f"{file}: {line}" for line in wrong))


def _fault(kind: str, entry: Any) -> str:
    """Return what is wrong with a rule, or ""."""
    fields = FIELDS[kind]
    if not isinstance(entry, dict):
        return f"is {shown_value(entry)}; it must be an object with {', '.join(fields)}"
    for name in entry:
        if name not in fields:
            return f"has a field {name!r};{did_you_mean(name, fields)} fields: {', '.join(fields)}"
    for name, kind_of in fields.items():
        value: Any = entry.get(name)
        if value is None and name == "parent_module":
            continue
        fits = isinstance(value, kind_of) and not isinstance(value, bool)
        if not fits or (value == "" and name != "parent_module"):
            verb = "lacks" if name not in entry else f"has {shown_value(value)} in"
            return f"{verb} {name!r}; it must be {'a number' if kind_of is int else 'a string'}"
        if name == "arg_idx" and value < 0:
            return f"has {value} in 'arg_idx'; the first argument is 0"
        if name not in ("arg_idx", "arg_new") and not all(part.isidentifier() for part in value.split(".")) and value:
            return f"has {shown_value(value)} in {name!r}, which is not a Python name"
    return _argument_fault(entry["arg_new"]) if kind == ARGS else ""


def _argument_fault(text: str) -> str:
    try:
        call = cst.parse_expression(f"f({text})")
    except (cst.ParserSyntaxError, RecursionError):
        return f"has {shown_value(text)} in 'arg_new', which is not an argument of a call"
    one = isinstance(call, cst.Call) and len(call.args) == 1 and not call.args[0].star
    return "" if one else f"has {shown_value(text)} in 'arg_new'; it must be one argument"


def use_rules(script: Script, rules: UserRules) -> None:
    """Apply the user's rules."""
    for node in script.nodes:
        if isinstance(node, cst.Call):
            for rule in rules.rules.get(ARGS, ()):
                _argument(script, node, rule)
            for rule in rules.rules.get(FUNCTION, ()):
                _function(script, node, rule)
    for rule in rules.rules.get(MODULE, ()):
        _module(script, rule)


def _called(script: Script, node: cst.Call, name: str) -> bool:
    """Return whether a call is of a function, by its full name, as written, or by its last part."""
    written = path_of(node.func)
    last = node.func.attr.value if isinstance(node.func, cst.Attribute) else written
    return name in (written, last, script.dotted(node.func))


def _argument(script: Script, node: cst.Call, rule: Mapping[str, Any]) -> None:
    if not _called(script, node, rule["func_name"]):
        return
    index = rule["arg_idx"]
    plain = [arg for arg in node.args if arg.keyword is None]
    if index >= len(node.args) or any(arg.star for arg in node.args[: index + 1]):
        script.todo(node.func, f"{ARGS} refers to argument {index}, which this call does not have", "check the rule")
        return
    value = node.args[index]
    if value.keyword is not None and len(plain) <= index and "=" not in rule["arg_new"]:
        script.replace(value.value, rule["arg_new"], ARGS, f"argument {index} of {rule['func_name']}")
    elif script.code(value).rstrip(", ") != rule["arg_new"]:
        start = script.span(value.keyword or value.value)[0]
        script.edit(
            start, script.span(value.value)[1], rule["arg_new"], ARGS, f"argument {index} of {rule['func_name']}"
        )


def _function(script: Script, node: cst.Call, rule: Mapping[str, Any]) -> None:
    old, new = rule["old_name"], rule["new_name"]
    if not _called(script, node, old):
        return
    why = f"{old} becomes {new}"
    if isinstance(node.func, cst.Attribute) and "." not in new:
        script.replace(node.func.attr, new, FUNCTION, why)
    elif script.replace(node.func, new, FUNCTION, why) and isinstance(node.func, cst.Name):
        _rename_import(script, node.func, new, why)


def _rename_import(script: Script, name: cst.Name, new: str, why: str) -> None:
    for one in script.bindings(name):
        statement = getattr(one, "node", None)
        if isinstance(statement, cst.ImportFrom) and not isinstance(statement.names, cst.ImportStar):
            for alias in statement.names:
                if alias.asname is None and path_of(alias.name) == name.value:
                    script.replace(alias.name, new, FUNCTION, why)


def _module(script: Script, rule: Mapping[str, Any]) -> None:
    parent, old, new = rule.get("parent_module") or "", rule["old_name"], rule["new_name"]
    full = f"{parent}.{old}" if parent else old
    why = f"{full} becomes {f'{parent}.{new}' if parent else new}"
    for node in script.nodes:
        if isinstance(node, cst.Attribute):
            inside = any(isinstance(one, (cst.Import, cst.ImportFrom)) for one in script.above(node))
            name = path_of(node) if inside else script.dotted(node)
            if name == full and node.attr.value == old:
                script.replace(node.attr, new, MODULE, why)
        elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                if module_path(node) == parent and path_of(alias.name) == old:
                    script.replace(alias.name, new if alias.asname else f"{new} as {old}", MODULE, why)
            if not parent and isinstance(node.module, cst.Name) and node.module.value == old:
                script.replace(node.module, new, MODULE, why)
        elif isinstance(node, cst.Import) and not parent:
            for alias in node.names:
                if path_of(alias.name) == old:
                    script.replace(alias.name, new if alias.asname else f"{new} as {old}", MODULE, why)
