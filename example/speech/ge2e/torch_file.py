"""Reader of tensors that ``torch.save`` wrote before PyTorch 1.6; PyTorch is not needed.

Such a file is five pickles (a magic number, a version, the machine, the object, the keys of its storages) and then the
storages' numbers. Nothing is unpickled: the opcodes listed by :mod:`pickletools` are interpreted with the few rules
below, classes stay names, and any other opcode or name raises an error. So a file gives only tensors and plain
containers, and no code in it is executed.
"""

from __future__ import annotations

import pickletools
import sys
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ModelError

MAGIC = 0x1950A86A20F9469CFC6C
"""The first pickle of every such file."""

DTYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
}
"""Dtype of a storage, by the name of its class."""

REBUILD, ORDERED = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
"""The two functions that may be called: one makes a tensor, one a dictionary."""

VALUES = ("BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT")
"""Opcodes whose argument is the value."""

MADE = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}

MARK = object()


class Storage(NamedTuple):
    """A storage that tensors are views of: the name of its class, its key, and its number of elements."""

    kind: str
    key: str
    count: int


class View(NamedTuple):
    """A tensor: its storage, its offset there, its sizes, and its strides in elements."""

    storage: Storage
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]


class Name(NamedTuple):
    """A reference to a class or a function: module and name."""

    text: str


class _Reader:
    """Interpreter of the opcodes of one pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.storages: dict[str, Storage] = {}

    def read(self, file: IO[bytes]) -> Any:
        """Return the object of the next pickle in a file."""
        for opcode, argument, _ in pickletools.genops(file):
            self._follow(opcode.name, argument)
        (found,) = self.stack
        return found

    def _follow(self, name: str, argument: Any) -> None:
        if name in VALUES:
            self.stack.append(argument)
        elif name in CONSTANTS:
            self.stack.append(CONSTANTS[name])
        elif name in MADE:
            self.stack.append(MADE[name]())
        elif name in TUPLES:
            self.stack.append(self._last(TUPLES[name]))
        elif name == "TUPLE":
            self.stack.append(tuple(self._marked()))
        elif name == "MARK":
            self.stack.append(MARK)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name == "GLOBAL":
            self.stack.append(Name(argument))
        else:
            self._change(name)

    def _change(self, name: str) -> None:
        """Interpret an opcode that calls, fills or ends."""
        if name == "BINPERSID":
            self.stack.append(self._storage(self.stack.pop()))
        elif name == "REDUCE":
            function, arguments = self._last(2)
            self.stack.append(_called(function, arguments))
        elif name == "BUILD":  # the state of a dictionary: the versions of modules, which are not weights
            self.stack.pop()
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._last(2) if name == "SETITEM" else self._marked()
            self.stack[-1].update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name in ("APPEND", "APPENDS"):
            values = self._last(1) if name == "APPEND" else self._marked()
            self.stack[-1].extend(values)
        elif name not in ("PROTO", "STOP"):
            raise ValueError(f"opcode {name}")

    def _last(self, count: int) -> tuple[Any, ...]:
        """Pop values from the stack."""
        taken = tuple(self.stack[-count:])
        del self.stack[-count:]
        return taken

    def _marked(self) -> list[Any]:
        """Pop the values above the last mark, and the mark."""
        place = max(i for i, one in enumerate(self.stack) if one is MARK)
        taken = self.stack[place + 1 :]
        del self.stack[place:]
        return taken

    def _storage(self, saved: Any) -> Storage:
        """Record a storage that the file refers to: ``('storage', class, key, place, count, no view)``."""
        kind, cls, key, _, count, view = saved
        if kind != "storage" or view is not None or not isinstance(cls, Name):
            raise ValueError(f"a storage saved as {saved!r}")
        self.storages[key] = Storage(cls.text.split()[-1], key, int(count))
        return self.storages[key]


def read(path: Path) -> Any:
    """Return the object in a file, with tensors as arrays.

    Raises:
        ModelError: the file cannot be read, is of another kind, or holds more than tensors and plain containers.
    """
    try:
        with path.open("rb") as file:
            if _Reader().read(file) != MAGIC:
                raise ModelError(f"{path}: not a file that torch.save wrote before PyTorch 1.6; fetch it again")
            _Reader().read(file)
            _Reader().read(file)
            reader = _Reader()
            found = reader.read(file)
            numbers = {key: _numbers(file, reader.storages[key]) for key in _Reader().read(file)}
            return _filled(found, numbers)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error}); check the path") from error
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ModelError(f"{path}: damaged, or holds more than tensors ({error}); fetch it again") from error


def _called(function: Any, arguments: Any) -> Any:
    if function == Name(ORDERED):
        return dict(*arguments)
    if function == Name(REBUILD):
        storage, start, shape, steps = arguments[:4]
        return View(storage, start, shape, steps)
    raise ValueError(f"a call of {function}")


def _numbers(file: IO[bytes], storage: Storage) -> Array:
    """Return the elements of the next storage, which are preceded by their count in 8 bytes."""
    dtype = np.dtype(DTYPES[storage.kind])
    count = int.from_bytes(file.read(8), "little")
    if count != storage.count:
        raise ValueError(f"storage {storage.key} has {count} numbers of {storage.count}")
    return np.frombuffer(file.read(count * dtype.itemsize), dtype, count)


def _filled(found: Any, numbers: dict[str, Array]) -> Any:
    """Return an object with its tensors replaced by arrays."""
    if isinstance(found, View):
        flat = numbers[found.storage.key]
        last = found.start + sum(step * (size - 1) for size, step in zip(found.shape, found.steps, strict=True))
        if found.start < 0 or min((*found.shape, *found.steps, 1)) < 0 or last >= len(flat):
            raise ValueError(f"a tensor of {found.shape} goes beyond its {len(flat)} numbers")
        steps = tuple(step * flat.itemsize for step in found.steps)
        return np.lib.stride_tricks.as_strided(flat[found.start :], found.shape, steps, writeable=False).copy()
    if isinstance(found, dict):
        return {key: _filled(value, numbers) for key, value in found.items()}
    if isinstance(found, (list, tuple)) and not isinstance(found, Name):
        return type(found)(_filled(value, numbers) for value in found)
    return found
