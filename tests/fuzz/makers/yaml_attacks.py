"""Hostile YAML: valid but harmful constructs, and values of wrong types."""

from __future__ import annotations

import copy
import random
from typing import Any

import yaml

LONG = "n" * 5000
BOMB = "b0: &b0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 12)
)
_MERGES = "m0: &m0 {a: 1, b: 2}\n" + "".join(
    f"m{n}: &m{n} {{<<: [{', '.join([f'*m{n - 1}'] * 9)}], k{n}: 1}}\n" for n in range(1, 9)
)
_CHAIN = "c0: &c0 [x]\n" + "".join(f"c{n}: &c{n} [*c{n - 1}]\n" for n in range(1, 2000))

TEXTS = {
    "an alias bomb": BOMB,
    "an alias bomb in a list": "- " + BOMB.replace("\n", "\n  ").rstrip() + "\n",
    "an alias bomb of text": f"t: &t {'x' * 9000}\nu: &u [{', '.join(['*t'] * 900)}]\nv: [{', '.join(['*u'] * 900)}]\n",
    "a bomb of merges": _MERGES,
    "a bomb of merges in a list": "- " + _MERGES.replace("\n", "\n  ").rstrip() + "\n",
    "a chain of aliases": _CHAIN,
    "a list in itself": "a: &a [*a]\n",
    "a mapping in itself": "&a {a: *a}\n",
    "a mapping that is its own key": "&a {? *a : 1}\n",
    "brackets": "[" * 10_000,
    "deep and wide": "- " + "[" * 400 + "1," * 100_000 + "]" * 400,
    "braces": "{a: " * 10_000,
    "dashes": "- " * 10_000 + "x",
    "question marks": "? " * 5_000 + "x",
    "unknown keys": "".join(f"key{n}: {n}\n" for n in range(40_000)),
    "unknown keys in a list": "- " + "  ".join(f"key{n}: {n}\n" for n in range(25_000)),
    "many entries": "- a\n" * 60_000,
    "many mappings": "- {a: 1}\n" * 30_000,
    "many broken entries": "- a: [\n" * 1500,
    "the same key": "a: 1\n" * 30_000,
    "tabs": "a:\n\t- b\n",
    "a null character": "a: \0\n",
    "an object": "a: !!python/object/apply:os.system ['touch outside/made']\n",
    "a module": "!!python/module:os\n",
    "an unknown tag": "a: !nobody/knows 1\n",
    "binary": "a: !!binary iVBORw0KGgo=\n",
    "a timestamp": "2001-12-14t21:59:43.10-05:00: 2024-13-45\n",
    "a set": "!!set {a, b, c}\n",
    "pairs": "!!pairs [a: 1, a: 2]\n",
    "a huge number": f"a: {'9' * 4400}\n",
    "a huge number in hex": f"a: 0x{'f' * 9000}\n",
    "a huge number in sixties": f"a: 1{':59' * 3000}\n",
    "a huge number as a key": f"{'1' * 4400}: 1\n",
    "two documents": "--- {a: 1}\n--- {b: 2}\n",
    "null": "null\n",
    "nothing": "",
    "a word": "word\n",
    "an undefined alias": f"a: *{LONG}\n",
    "a long key": f"{LONG}: 1\n",
    "a list as a key": "? [a, b]\n: 1\n",
    "a huge file": "#" * (3 << 20) + "\na: 1\n",
    "directives": "%YAML 9.9\n" + "%TAG ! tag:x,1:\n" * 3 + "--- a\n",
}
"""Whole files."""

VALUES = (
    *(None, True, False, 0, -1, 10**30, 10**99, 2**31, 2**63, 1.5, 1e308, 5e-324, float("nan"), float("inf"), "", " "),
    *(
        "text",
        LONG,
        "n\0l",
        "line\nbreak",
        "\x1b[31mred",
        "\u202egnp",
        "\ud800",
        "../../outside/x",
        "..",
        "/",
        "~/x",
        "-1",
    ),
    *("--resume=/tmp/x", "a=/etc/passwd", "1_000", "0o17", "190:20:30", "1e3", "{}", "%s%n", "'\"`$(id)"),
    *([], {}, [[]], [None], {"a": 1}, {1: 2}, {None: None}, ["x"] * 500, list(range(50)), {"x": {"y": {"z": []}}}),
)
"""Values of wrong types; :func:`changed` has those that PyYAML represents by name."""

RAW = (
    "2024-01-01",
    "!!binary aGk=",
    "!!set {a}",
    "0x" + "f" * 400,
    "*nowhere",
    "&a [*a]",
    "1:59:59",
    "!!float .nan",
    "~",
)


def changed(data: Any, rng: random.Random, outside: str) -> tuple[str, str]:
    """Return a configuration with one to three of its values changed as YAML, and a description of the changes."""
    done = []
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(list(_places(data)))
        how = rng.randrange(6)
        # A copy: the same list twice, and then changed, would hold itself, and be another one in the next case.
        value = copy.deepcopy(rng.choice((*VALUES, outside, f"{outside}/made", f"x={outside}/made", f"link/{'made'}")))
        if how == 0 and isinstance(holder, dict):
            del holder[key]
        elif how == 1 and isinstance(holder, dict):
            holder[rng.choice(("extra", LONG, 5, None, True, 1.5, "résumé", "json", "resume", "<<"))] = value
        elif how == 2:
            holder[key] = "RAW" + str(rng.randrange(len(RAW)))
        elif how == 3 and isinstance(holder, dict):
            holder[key] = [holder[key]] if rng.random() < 0.5 else {"a": holder[key]}
        else:
            holder[key] = value
        done.append(f"{str(key)[:40]} ({how}): {str(value)[:40]!r}")
        if not list(_places(data)):
            break
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=rng.random() < 0.5)
    for number, raw in enumerate(RAW):
        text = text.replace(f"RAW{number}", raw)
    return text, "; ".join(done)


def _places(data: Any) -> list[tuple[Any, Any]]:
    """Return every key of every mapping and every index of every list."""
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        one = waiting.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else []
        found += [(one, key) for key in keys]
        waiting += [one[key] for key in keys]
    return found


def encoded(text: str, rng: random.Random) -> tuple[bytes, str]:
    """Return a text as bytes, mostly in the right encoding."""
    how = rng.choice(("utf-8",) * 8 + ("utf-8-sig", "utf-16", "utf-32", "latin-1", "crlf", "cr"))
    if how in ("crlf", "cr"):
        return text.replace("\n", "\r\n" if how == "crlf" else "\r").encode("utf-8", "surrogatepass"), how
    return text.encode(how, "surrogatepass" if how.startswith("utf") else "replace"), how
