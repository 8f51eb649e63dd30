"""Sizes that may contain the number of samples: integers times symbols, and symbolic results of other computations."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

BATCH_SYMBOL = "#"
"""Symbol of the number of samples; every symbol whose name contains it depends on that number."""

_LONGEST = 120  # maximum length of a symbol's name; longer names are replaced by a hash


@dataclass(frozen=True, slots=True)
class Term:
    """An integer times one or more sorted symbols, such as ``12·#·seq``."""

    factor: int
    symbols: tuple[str, ...]

    def __str__(self) -> str:
        return "·".join([*([str(self.factor)] if self.factor != 1 else []), *self.symbols])


Size: TypeAlias = int | Term  # a number of elements or rows
Number: TypeAlias = int | float | Term  # an element of a small tensor with known contents
BATCH = Term(1, (BATCH_SYMBOL,))  # the number of samples


def symbol(name: str) -> Term:
    """Return an unknown size with a name."""
    return Term(1, (name,))


def opaque(text: str, *parts: Number) -> Term:
    """Return the symbolic result of a computation; it depends on the batch if one of its parts does."""
    if len(text) > _LONGEST:
        text = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
        text += BATCH_SYMBOL if any(map(has_batch, parts)) else ""
    return symbol(f"({text})")


def has_batch(number: Number) -> bool:
    """Return whether a number depends on the number of samples."""
    return isinstance(number, Term) and any(BATCH_SYMBOL in name for name in number.symbols)


def is_size(number: Number) -> bool:
    """Return whether a symbolic number is a product of sizes, hence not negative."""
    return isinstance(number, Term) and number.factor > 0 and not any(name.startswith("(") for name in number.symbols)


def times(a: Size, b: Size) -> Size:
    """Return the product."""
    return _term(_factor(a) * _factor(b), (*_symbols(a), *_symbols(b)))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of all sizes, 1 for none."""
    total: Size = 1
    for size in sizes:
        total = times(total, size)
    return total


def over(a: Size, b: Size) -> Size | None:
    """Return the exact quotient; ``None`` if it does not exist or is unknown."""
    rest = list(_symbols(a))
    for name in _symbols(b):
        if name not in rest:
            return None
        rest.remove(name)
    if _factor(b) == 0 or _factor(a) % _factor(b):
        return None
    return _term(_factor(a) // _factor(b), rest)


def bound(size: Size, number: int) -> Size:
    """Return a size with the number of samples replaced by ``number``."""
    count = _symbols(size).count(BATCH_SYMBOL)
    rest = [name for name in _symbols(size) if name != BATCH_SYMBOL]
    return _term(_factor(size) * number**count, rest)


def replaced(size: Size, name: str, value: Size) -> Size:
    """Return a size with a symbol replaced by a size."""
    count = _symbols(size).count(name)
    result: Size = _term(_factor(size), [one for one in _symbols(size) if one != name])
    for _ in range(count):
        result = times(result, value)
    return result


def solved(a: Size, b: Size) -> tuple[str, Size] | None:
    """Return a symbol, not the batch, and its value for which two sizes are equal; ``None`` if there is none."""
    left, right = list(_symbols(a)), list(_symbols(b))
    for name in tuple(left):
        if name in right:
            left.remove(name)
            right.remove(name)
    sides = ((left, _factor(a), right, _factor(b)), (right, _factor(b), left, _factor(a)))
    for mine, own, others, factor in sides:
        free = len(mine) == 1 and not any(BATCH_SYMBOL in name for name in (*mine, *others))
        if free and own and factor % own == 0:
            return mine[0], _term(factor // own, others)
    return None


def only_batch(size: Size) -> bool:
    """Return whether a size is a number, or a number times the number of samples."""
    return all(name == BATCH_SYMBOL for name in _symbols(size))


def _factor(size: Size) -> int:
    return size.factor if isinstance(size, Term) else size


def _symbols(size: Size) -> tuple[str, ...]:
    return size.symbols if isinstance(size, Term) else ()


def _term(factor: int, symbols: Iterable[str]) -> Size:
    names = tuple(sorted(symbols))
    return Term(factor, names) if names and factor else factor


def add(a: Number, b: Number, sign: int = 1) -> Number:
    """Return ``a + sign * b``."""
    if not isinstance(a, Term) and not isinstance(b, Term):
        return a + sign * b
    if not isinstance(a, float) and not isinstance(b, float) and (_symbols(a) == _symbols(b) or b == 0):
        return _term(_factor(a) + sign * _factor(b), _symbols(a))
    if a == 0 and sign == 1:
        return b
    return opaque(f"{a}{'+' if sign > 0 else '-'}{b}", a, b)


def subtract(a: Number, b: Number) -> Number:
    """Return ``a - b``."""
    return add(a, b, -1)


def multiply(a: Number, b: Number) -> Number:
    """Return ``a * b``."""
    if not isinstance(a, Term) and not isinstance(b, Term):
        return a * b
    first, second = _whole(a), _whole(b)
    return opaque(f"{a}*{b}", a, b) if first is None or second is None else times(first, second)


def divide(a: Number, b: Number) -> Number:
    """Return ``a / b``; integers are rounded towards zero, as in ONNX."""
    if not isinstance(a, Term) and not isinstance(b, Term):
        if b == 0:
            return opaque(f"{a}/{b}")
        if isinstance(a, float) or isinstance(b, float):
            return a / b
        return math.trunc(abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    first, second = _whole(a), _whole(b)
    exact = over(first, second) if first is not None and second is not None else None
    return opaque(f"{a}/{b}", a, b) if exact is None else exact


def equal(a: Number, b: Number) -> Number:
    """Return whether two numbers are equal, symbolic if unknown."""
    if a == b or not (isinstance(a, Term) or isinstance(b, Term)):
        return a == b
    if (is_size(a) and not isinstance(b, Term) and b < 0) or (is_size(b) and not isinstance(a, Term) and a < 0):
        return False
    return opaque(f"{a}=={b}", a, b)


def less(a: Number, b: Number) -> Number:
    """Return whether ``a < b``, symbolic if unknown."""
    if not isinstance(a, Term) and not isinstance(b, Term):
        return a < b
    if is_size(a) and not isinstance(b, Term) and b <= 0:
        return False
    if is_size(b) and not isinstance(a, Term) and a < 0:
        return True
    return opaque(f"{a}<{b}", a, b)


def choose(condition: Number, a: Number, b: Number) -> Number:
    """Return ``a`` if the condition holds, else ``b``."""
    if isinstance(condition, Term):
        return a if a == b and type(a) is type(b) else opaque(f"{condition}?{a}:{b}", condition, a, b)
    return a if condition else b


def _whole(number: Number) -> Size | None:
    if isinstance(number, float):
        return int(number) if number.is_integer() else None
    return number
