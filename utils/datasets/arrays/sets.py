"""Data sets of arrays: rows of files, or folders with a file per sample, with expected arrays beside them.

=========================  =============================================================================================
``x.npz``                  an entry per input, and expected arrays under the output's name or ``expected/NAME``; axis 0
                           are the samples
``x.npy``                  the only input
``x.csv``, ``x.tsv``       columns of the only input; ``NAME`` or ``NAME/0``, ``NAME/1``, ... for one of several
``x.expected.npz``         (or ``.npy``, ``.csv``) expected arrays beside any of them
``left=a.npy right=b.npy`` an input each; ``expected=c.npz``
a folder                   a file of these per sample, without the axis of the samples
=========================  =============================================================================================

With one output, ``expected`` and ``label`` are names for it too. An entry ``units`` (integers or one text per sample)
names independent units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import did_you_mean
from utils.datasets.arrays.files import EXPECTED, LABEL, ONLY, SUFFIXES, TABLES, UNITS, read_arrays, whole_numbers
from utils.datasets.base import ListDataset, Rejected, check_exists

SINGLE_FILE = "single_file"
"""Key of a data set's notes: the file of all samples; missing if they are in several."""

EXPECTED_FORMS = "expected"
"""Key of a data set's notes: per output with expected arrays, the shape of a sample's, and its dtype."""


class ArraySample(NamedTuple):
    """A sample: its name, an array per input of the model, and whether they are rows of a table (flat)."""

    name: str
    arrays: tuple[Array, ...]
    flat: bool = False


class Tensors(NamedTuple):
    """Names of a model's inputs and outputs, in its order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def columns(self) -> set[str]:
        """Names that a table's columns may belong to."""
        extra = {EXPECTED, LABEL} if len(self.outputs) == 1 else set()
        return {*self.inputs, *self.outputs, *(f"{EXPECTED}/{name}" for name in self.outputs), *extra}


class _Held(NamedTuple):
    """What some files hold: an array per input, and expected arrays by output; ``flat``: of a table."""

    inputs: list[Array]
    expected: dict[str, Array]
    flat: bool


def load_arrays(paths: Mapping[str, Path], tensors: Tensors, *, wanted: bool) -> ListDataset:
    """Load a data set of arrays; see the module.

    Args:
        paths: ``data``; or an input's name, each with a path; and ``expected``.
        tensors: of the model.
        wanted: expected arrays are needed.

    Returns:
        Samples are :class:`ArraySample`, targets mappings of outputs to arrays, or ``None`` for all of them. A file of
        a folder that cannot be a sample is rejected.

    Raises:
        DataError: a path cannot be read or has no samples, an input or an expected array is missing, or numbers of
            samples differ.
    """
    check_exists(*paths.values())
    unknown = next((name for name in paths if name not in ("data", EXPECTED, *tensors.inputs)), None)
    if unknown is not None:
        names = ", ".join(["data", *tensors.inputs, EXPECTED])
        raise DataError(f"--data_path {unknown}={paths[unknown]}: no input {unknown!r}; give paths for: {names}")
    folders = [path for path in paths.values() if path.is_dir()]
    if folders and len(folders) < len(paths):
        raise DataError(f"{folders[0]} is a folder and other paths are files; give folders only, or files only")
    return _of_folders(paths, tensors, wanted) if folders else _of_files(paths, tensors, wanted)


def _of_files(paths: Mapping[str, Path], tensors: Tensors, wanted: bool) -> ListDataset:
    """Return the rows of files."""
    first = next(iter(paths.values()))
    held, files, units = _held(paths, tensors, wanted)
    named = {**dict(zip(tensors.inputs, held.inputs, strict=True)), **held.expected}
    for name, array in named.items():
        if not array.ndim or not len(array):
            raise DataError(f"{first}: {name!r} has shape {array.shape}; its first axis must be the samples")
    counts = {name: len(array) for name, array in named.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise DataError(f"{first}: numbers of samples differ: {listed}; axis 0 must be the samples in each array")
    count = next(iter(counts.values()))
    names = [f"{first}[{row}]" for row in range(count)]
    samples = [
        ArraySample(name, tuple(array[row] for array in held.inputs), held.flat) for row, name in enumerate(names)
    ]
    targets = [{name: array[row] for name, array in held.expected.items()} for row in range(count)]
    for array in held.expected.values() if wanted else ():
        if array.dtype.kind == "f" and np.isnan(array).any():
            row = int(np.isnan(array).reshape(count, -1).any(axis=1).argmax())
            _refuse_nan(names[row], targets[row])
    return _dataset(samples, targets, files, {SINGLE_FILE: str(first)}, units=units)


def _of_folders(paths: Mapping[str, Path], tensors: Tensors, wanted: bool) -> ListDataset:
    """Return a sample per file; files of several folders belong together by their names without ending."""
    tables = {name: _by_stem(path) for name, path in paths.items()}
    first = next(iter(paths.values()))
    stems = next(iter(tables.values()))
    if not stems:
        raise DataError(f"{first} has no {', '.join(SUFFIXES)} files; put one per sample there")
    samples, targets, files, rejected = [], [], list[Path](), list[Rejected]()
    for stem, file in stems.items():
        try:
            lacking = next((name for name, table in tables.items() if stem not in table), None)
            if lacking is not None:
                raise DataError(f"{paths[lacking]} has no file {stem}.*, which {file} needs; add it")
            own = {name: table[stem] for name, table in tables.items()}
            held, read, _ = _held(own, tensors, wanted, alone=True)
            _refuse_nan(str(file), held.expected if wanted else {})
        except DataError as error:
            rejected.append(Rejected(file, str(error).removeprefix(f"{file}: ")))
            continue
        samples.append(ArraySample(str(file), tuple(held.inputs), held.flat))
        targets.append(held.expected)
        files += read
    if not samples:
        raise DataError(f"{rejected[0].path}: {rejected[0].reason} (and no other file of {first} is a sample)")
    return _dataset(samples, targets, files, {}, rejected)


def _dataset(
    samples: Sequence[ArraySample],
    targets: Sequence[Mapping[str, Array]],
    files: Sequence[Path],
    notes: Mapping[str, Any],
    rejected: Sequence[Rejected] = (),
    units: Sequence[str] | None = None,
) -> ListDataset:
    forms = {name: (array.shape, array.dtype) for name, array in targets[0].items()}
    names = [sample.name for sample in samples]
    return ListDataset(
        samples,
        targets if all(targets) else None,
        names=names,
        units=units,
        files=files,
        rejected=rejected,
        notes={**notes, EXPECTED_FORMS: forms},
    )


def _by_stem(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by name without ending, in order, without those of expected arrays."""
    found = {file.stem: file for file in sorted(folder.iterdir()) if file.suffix.lower() in SUFFIXES}
    return {stem: file for stem, file in found.items() if not stem.endswith(f".{EXPECTED}")}


def _held(
    paths: Mapping[str, Path], tensors: Tensors, wanted: bool, *, alone: bool = False
) -> tuple[_Held, list[Path], list[str] | None]:
    """Return the arrays of files that belong together, the files, and the names of units; ``alone``: of one sample."""
    entries: dict[str, Array] = {}
    files = list(paths.values())
    for role, path in paths.items():
        entries |= _by_role(role, path, tensors, alone)
    if wanted and EXPECTED not in paths and not _expected_in(entries, tensors):
        beside = next((file for file in _beside(files[0]) if file.is_file()), None)
        if beside is not None:
            entries |= _by_role(EXPECTED, beside, tensors, alone)
            files.append(beside)
    units = entries.pop(UNITS, None) if UNITS not in tensors.inputs else None
    flat = all(path.suffix.lower() in TABLES for name, path in paths.items() if name != EXPECTED)
    expected = _taken_expected(entries, tensors)
    inputs = [_taken_input(name, entries, tensors, files[0]) for name in tensors.inputs]
    if entries:
        extra = next(iter(entries))
        known = sorted({*tensors.inputs, *tensors.outputs})
        hint = did_you_mean(extra, known)
        raise DataError(
            f"{files[0]}: entry {extra!r} is neither an input nor an output of the model;{hint} its inputs: "
            f"{', '.join(tensors.inputs)}; its outputs: {', '.join(tensors.outputs)}; rename or remove the entry"
        )
    if wanted and not expected:
        name = tensors.outputs[0]
        raise DataError(
            f"{files[0]}: has no expected output; add an entry {name!r} (or '{EXPECTED}/{name}'), or write "
            f"{_beside(files[0])[0].name} beside it"
        )
    return _Held(inputs, expected, flat), files, None if units is None else [str(unit) for unit in units.tolist()]


def _beside(file: Path) -> list[Path]:
    """Return the possible files of expected arrays beside a file."""
    order = sorted(SUFFIXES, key=lambda suffix: suffix != file.suffix.lower())
    return [file.with_name(f"{file.stem}.{EXPECTED}{suffix}") for suffix in order]


def _by_role(role: str, path: Path, tensors: Tensors, alone: bool) -> dict[str, Array]:
    """Return the arrays of a file: as they are, or under an input's name, or as expected ones."""
    found = read_arrays(path, tensors.columns)
    if path.suffix.lower() in TABLES:
        found = whole_numbers(found)
        rows = len(next(iter(found.values())))
        if alone and rows != 1:
            raise DataError(f"{path}: has {rows} rows; a file in a folder is one sample; give the file itself")
        found = {name: array[0] for name, array in found.items()} if alone else found
    if role == "data":
        return found
    if role != EXPECTED:
        if len(found) != 1:
            raise DataError(f"{path}: holds {len(found)} arrays ({', '.join(found)}); input {role!r} takes one")
        return {role: next(iter(found.values()))}
    if len(found) == len(tensors.outputs) == 1:
        return {EXPECTED: next(iter(found.values()))}
    return {name if name.startswith(f"{EXPECTED}/") else f"{EXPECTED}/{name}": array for name, array in found.items()}


def _aliases(output: str, tensors: Tensors) -> tuple[str, ...]:
    """Return the names of an output's expected array, the most explicit first."""
    general = (EXPECTED, LABEL) if len(tensors.outputs) == 1 else ()
    return f"{EXPECTED}/{output}", *(() if output in tensors.inputs else (output,)), *general


def _expected_in(entries: Mapping[str, Array], tensors: Tensors) -> bool:
    return any(name in entries for output in tensors.outputs for name in _aliases(output, tensors))


def _taken_expected(entries: dict[str, Array], tensors: Tensors) -> dict[str, Array]:
    """Take the expected arrays out of the entries."""
    found = {}
    for output in tensors.outputs:
        name = next(
            (name for name in _aliases(output, tensors) if name in entries and name not in tensors.inputs), None
        )
        if name is not None:
            found[output] = entries.pop(name)
    return found


def _taken_input(name: str, entries: dict[str, Array], tensors: Tensors, file: Path) -> Array:
    """Take the array of an input out of the entries; the only input may have any name."""
    if name in entries:
        return entries.pop(name)
    if len(tensors.inputs) == 1 and len(entries) == 1:
        return entries.popitem()[1]
    held = ", ".join(entry or "an array without a name" for entry in entries) or "nothing else"
    several = f"; give {' '.join(f'{one}=FILE' for one in tensors.inputs)}" if ONLY in entries else ""
    raise DataError(f"{file}: has no entry {name!r}, an input of the model (found: {held}); add it{several}")


def _refuse_nan(name: str, expected: Mapping[str, Array]) -> None:
    """Raise DataError if an expected array has NaN."""
    for output, array in expected.items():
        if array.dtype.kind == "f" and np.isnan(array).any():
            count = int(np.count_nonzero(np.isnan(array)))
            raise DataError(f"{name}: expected {output!r} has {count} NaN; replace them, or leave the sample out")
