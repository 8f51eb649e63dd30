"""Odd words, fields, lines and tables of text, and equivalent changes of tables."""

from __future__ import annotations

import random
from collections.abc import Sequence

ODD = (
    *("", " ", "0", "-1", "nan", "NaN", "inf", "-inf", "1e400", "-0.0", "1_000", "0x10", "1e-320", "\u0663", "None"),
    *("true", "9" * 30, "-" + "9" * 5000, "1." + "0" * 400, "x" * 5000, "9223372036854775808", "-9223372036854775809"),
    *("\x1b[31m", "\x00", "\u202e", "\ufeff", "\ud800", "a\x0bb", "a\x85b", "a\u2028b", '"', '""', '"a', "a,b", "a\tb"),
    *("::", "|", "|" * 2000, "=cmd|' /C calc'!A0", "../../etc/passwd", "%s%n", "{}", "[" * 500, "\r", "'; --"),
)
"""Texts instead of a number, a name or an id."""


WORDS = (
    *(word for word in ODD if word != "\ud800"),  # which no encoding has
    *("1" * 25, "\u00b2", "\uff11", "1,5", "True", "\t", "\x85", "\udcff", "#", "//", "..", "/dev/zero", "a b", "\\"),
)
"""Odd words in place of others; one has invalid UTF-8."""


def spoiled(rows: Sequence[Sequence[str]], rng: random.Random) -> tuple[list[list[str]], str]:
    """Return a table with one to five odd fields, lines or columns, and a description of the change."""
    found, done = [list(row) for row in rows], []
    for _ in range(rng.randint(1, 5)):
        place = rng.randrange(len(found))
        row = found[place]
        how = rng.choice(("field", "field", "field", "head", "short", "long", "twice", "gone", "column", "swap"))
        if how == "field" and row:
            row[rng.randrange(len(row))] = rng.choice(ODD)
        elif how == "head" and found[0]:
            found[0][rng.randrange(len(found[0]))] = rng.choice((*ODD, *found[0]))
        elif how == "short":
            del row[rng.randrange(len(row) + 1) :]
        elif how == "long":
            row += [rng.choice(ODD)] * rng.choice((1, 2, 3000))
        elif how == "twice":
            found[place:place] = [list(row)] * rng.choice((1, 500))
        elif how == "gone" and len(found) > 1:
            del found[place]
        elif how == "column":
            column, value = rng.randrange(max(map(len, found), default=0) + 1), rng.choice(ODD)
            for line in found[1:]:
                if column < len(line):
                    line[column] = value
        elif how == "swap":
            rng.shuffle(row)
        done.append(how)
    return found, ", ".join(done)


def encoded(text: str, rng: random.Random) -> bytes:
    """Return a text in another encoding."""
    kind = rng.choice(("utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-32", "latin-1"))
    return text.encode(kind, "replace" if kind == "latin-1" else "surrogatepass")


def changed_lines(text: str, rng: random.Random) -> tuple[str, str]:
    """Return a text with one word or line changed, and a description of the change."""
    lines = text.split("\n")
    place = rng.randrange(len(lines))
    how = rng.random()
    if how < 0.15:
        del lines[place]
        return "\n".join(lines), f"line {place + 1} is gone"
    if how < 0.3:
        lines.insert(place, lines[place])
        return "\n".join(lines), f"line {place + 1} stands twice"
    if how < 0.45:
        lines.insert(place, rng.choice(WORDS))
        return "\n".join(lines), f"line {place + 1} is {lines[place][:60]!r}"
    words = lines[place].split(" ")
    word = rng.randrange(len(words))
    words[word] = rng.choice(WORDS) if how < 0.85 else words[word] + rng.choice(WORDS)
    lines[place] = " ".join(words)
    return "\n".join(lines), f"word {word + 1} of line {place + 1} is {words[word][:60]!r}"
