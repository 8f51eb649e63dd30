"""Molecules: SDF files and tables of SMILES, read as text and converted to graphs by RDKit, one at a time.

The features of an atom are fixed in training: :class:`AtomFeatures`, stored in the model's metadata. Reading a file
does not need RDKit, so that a molecule that cannot be parsed is reported when it is prepared and others still run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, ModelError
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import one_line
from utils.datasets.base import Rejected
from utils.datasets.graphs.files import Graph, Look
from utils.datasets.text.tables import read_table, utf8_or_latin1

if TYPE_CHECKING:
    from rdkit.Chem import Mol

SDF = (".sdf", ".sd", ".mol")
TABLES = (".csv", ".tsv", ".smi")
END = "$$$$"

MOST_ATOMS = 2000
"""Maximum number of atoms, explicit hydrogens included: RDKit takes hours for rings of many more."""

SMILES_COLUMNS = ("smiles", "canonical_smiles", "mol", "structure")
NAME_COLUMNS = ("name", "mol_id", "molecule_chembl_id", "compound id", "id")


class Molecule(NamedTuple):
    """A molecule as text: a mol block if ``block``, else a SMILES; ``name`` is for reports and file names."""

    text: str
    block: bool
    name: str


class Molecules(NamedTuple):
    """Molecules of a file, in order, targets float64 [G, T] with NaN if unknown (or ``None``), and unusable entries."""

    found: list[Molecule]
    targets: Array | None
    rejected: list[Rejected]


@dataclass(frozen=True)
class AtomFeatures:
    """Features of an atom, in this order: a one-hot vector per list with one entry for other values, then the rest.

    Attributes:
        elements: symbols of elements.
        degrees: numbers of heavy neighbours.
        hydrogens: numbers of hydrogens.
        rest: of :data:`REST`: formal charge, and 1 if aromatic, or in a ring.
    """

    elements: tuple[str, ...] = ("C", "N", "O", "S", "F", "P", "Cl", "Br", "I")
    degrees: tuple[int, ...] = (0, 1, 2, 3)
    hydrogens: tuple[int, ...] = (0, 1, 2)
    rest: tuple[str, ...] = ("charge", "aromatic", "ring")

    @property
    def width(self) -> int:
        """Number of features per atom."""
        return len(self.elements) + len(self.degrees) + len(self.hydrogens) + 3 + len(self.rest)

    @classmethod
    def of(cls, stored: Any, ckpt: Path) -> AtomFeatures:
        """Return the features in an export's metadata, a JSON object of the attributes; raise ModelError if invalid."""
        wanted = {"elements": str, "degrees": int, "hydrogens": int, "rest": str}
        if not isinstance(stored, Mapping) or set(stored) != set(wanted):
            raise ModelError(
                f"{ckpt}: metadata 'graph': atoms must be an object with {', '.join(wanted)}; export the model again"
            )
        for name, kind in wanted.items():
            values = stored[name]
            if not isinstance(values, list) or not all(isinstance(value, kind) for value in values):
                raise ModelError(f"{ckpt}: metadata 'graph': {name} is not a list of {kind.__name__}; export again")
        unknown = sorted(set(stored["rest"]) - set(REST))
        if unknown:
            expected = f"expected {', '.join(REST)}"
            raise ModelError(f"{ckpt}: metadata 'graph': atoms have {unknown[0]!r}, {expected}; export the model again")
        return cls(*(tuple(stored[name]) for name in wanted))

    def stored(self) -> dict[str, Any]:
        """Return the metadata to store: lists by name."""
        return {name: list(values) for name, values in asdict(self).items()}


REST = {
    "charge": lambda atom: float(atom.GetFormalCharge()),
    "aromatic": lambda atom: float(atom.GetIsAromatic()),
    "ring": lambda atom: float(atom.IsInRing()),
}


def read_sdf(file: Path, properties: Sequence[str]) -> Molecules:
    """Read an SDF file (CTfile formats, BIOVIA) in UTF-8, or else Latin-1: mol blocks, each followed by its data.

    ``properties`` are the names of the data that are targets. Raises DataError if the file cannot be read, has no
    molecule, or no molecule has a target.
    """
    found, targets, rejected, known = list[Molecule](), list[list[float]](), list[Rejected](), Counter[str]()
    for number, lines in _records(_lines(file)):
        name = lines[0].strip() or f"{file.stem}_{number}"
        end = next((place for place, line in enumerate(lines) if line.startswith("M  END")), None)
        if end is None:
            rejected.append(Rejected(Path(f"{file}:{number}"), f"{name!r} has no line 'M  END'; get the file again"))
            continue
        data = _data(lines[end + 1 :])
        known.update(data.keys())
        try:
            values = _values(data, properties)
        except ValueError as error:
            rejected.append(Rejected(Path(f"{file}:{number}"), f"{name!r}: {error}"))
            continue
        found.append(Molecule("\n".join(lines[: end + 1]) + "\n", True, name))
        targets.append(values)
    if known and properties and not any(known[name] for name in properties):
        names = ", ".join(map(repr, list(known)[:12]))
        raise DataError(f"{file}: no molecule has a property {properties[0]!r} (--property); they have {names}")
    return _molecules(file, found, targets, rejected, properties)


def _records(lines: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of the first line and the lines of each record."""
    start = 0
    for place, line in enumerate([*lines, END]):
        if line.startswith(END):
            if any(one.strip() for one in lines[start:place]):
                yield start + 1, lines[start:place]
            start = place + 1


def _data(lines: Sequence[str]) -> dict[str, str]:
    """Return the data of a record by name: a line with ``> <NAME>``, then lines of text up to an empty one."""
    found: dict[str, str] = {}
    name = None
    for line in lines:
        if line.startswith(">") and "<" in line:
            name = line[line.index("<") + 1 : line.rindex(">")] if line.rindex(">") > line.index("<") else None
        elif not line.strip():
            name = None
        elif name is not None:
            found[name] = f"{found[name]}\n{line}" if name in found else line
    return found


def read_smiles(file: Path, properties: Sequence[str], column: str | None = None) -> Molecules:
    """Read a table of SMILES in UTF-8: ``.csv`` or ``.tsv`` with named columns, or ``.smi`` with a SMILES and a name
    each.

    The columns ``properties`` are targets; without ``column``, the SMILES are in one with a usual name. Raises
    DataError if the file cannot be read, lacks a column, or no row has a target.
    """
    if file.suffix.lower() == ".smi":
        if properties:
            raise DataError(f"{file}: .smi files have no targets; pass a .csv file with a column {properties[0]!r}")
        rows = [(number, line.split(maxsplit=1)) for number, line in enumerate(_lines(file), 1) if line.strip()]
        smi = [Molecule(words[0], False, words[1].strip() if len(words) > 1 else words[0]) for _, words in rows]
        return _molecules(file, smi, [[] for _ in smi], [], ())
    table = read_table(file)
    place = table.column(column, SMILES_COLUMNS, "--smiles_column")
    if place is None:
        raise DataError(f"{file}: no column of SMILES among {table.listed()}; set it with --smiles_column")
    for name in properties:
        table.column(name, (), "--property")
    title = table.column(None, NAME_COLUMNS, "")
    found, targets, rejected = list[Molecule](), list[list[float]](), list(table.rejected)
    for row in table.rows:
        smiles = str(row.values.get(place, "")).strip()
        try:
            if not smiles:
                raise ValueError(f"its {place} is empty; add one, or remove the row")
            targets.append(_values(row.values, properties))
        except ValueError as error:
            rejected.append(table.reject(row, str(error)))
            continue
        name = str(row.values.get(title, "")).strip() if title else ""
        found.append(Molecule(smiles, False, name or smiles))
    return _molecules(file, found, targets, rejected, properties)


def _values(data: Mapping[str, Any], properties: Sequence[str]) -> list[float]:
    """Return the targets of a molecule, NaN for a missing one if another is present."""
    values = []
    for name in properties:
        text = str(data.get(name, "")).strip()
        try:
            values.append(float(text) if text else math.nan)
        except ValueError:
            raise ValueError(f"{name} is {text!r}, not a number; correct it") from None
        if math.isinf(values[-1]):
            raise ValueError(f"{name} is {text!r}; write a finite number")
    if properties and all(map(math.isnan, values)):
        raise ValueError(f"it has no {' or '.join(properties)}; add one, or remove the molecule")
    return values


def _molecules(
    file: Path, found: list[Molecule], targets: list[list[float]], rejected: list[Rejected], properties: Sequence[str]
) -> Molecules:
    if not found:
        first = f" ({rejected[0].path}: {rejected[0].reason})" if rejected else ""
        raise DataError(f"{file} has no usable molecule{first}; pass an SDF file, or a table of SMILES")
    seen = Counter(molecule.name for molecule in found)
    for place, one in enumerate(found):
        found[place] = one._replace(name=f"{one.name} ({place + 1})") if seen[one.name] > 1 else one
    return Molecules(found, np.array(targets, np.float64) if properties else None, rejected)


def _lines(file: Path) -> list[str]:
    return [line.rstrip("\r") for line in utf8_or_latin1(file).split("\n")]


def parsed(molecule: Molecule) -> Mol:
    """Return RDKit's molecule, sanitized and without explicit hydrogens.

    Raises DataError if RDKit cannot read it, or it violates the rules of valence, and ConfigError if RDKit is not
    installed.
    """
    with extra("reading molecules", "molecules"):
        from rdkit import Chem, rdBase
    what = "mol block" if molecule.block else f"SMILES {molecule.text!r}"
    with rdBase.BlockLogs():  # RDKit's log is part of the error instead
        try:
            if molecule.block:
                found = Chem.MolFromMolBlock(molecule.text, sanitize=False, removeHs=False)
            else:
                found = Chem.MolFromSmiles(molecule.text, sanitize=False)
            if found is None:
                raise DataError(f"RDKit cannot read its {what}; correct it, or remove the molecule")
            if found.GetNumAtoms() > MOST_ATOMS:
                raise DataError(f"it has {found.GetNumAtoms()} atoms, the maximum is {MOST_ATOMS}; remove it")
            Chem.SanitizeMol(found)
            found = Chem.RemoveHs(found)
        except (ValueError, RuntimeError) as error:  # the second: a broken invariant in RDKit
            if isinstance(error, DataError):
                raise
            raise DataError(f"its {what} is not a molecule: {one_line(error)}; correct it") from error
    if not found.GetNumAtoms():
        raise DataError(f"its {what} has no atoms; correct it, or remove the molecule")
    return found


def canonical(molecule: Molecule) -> str:
    """Return RDKit's canonical SMILES, independent of the input notation; raise DataError if it cannot be read."""
    found = parsed(molecule)
    from rdkit import Chem

    return str(Chem.MolToSmiles(found))


def graph_of(molecule: Molecule, features: AtomFeatures) -> Graph:
    """Return a molecule as a graph: atoms are nodes, a bond an edge in both directions; errors as in :func:`parsed`."""
    found = parsed(molecule)
    nodes = np.array([_numbers(atom, features) for atom in found.GetAtoms()], np.float32)
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in found.GetBonds()]
    both = np.array([pair for one in ends for pair in (one, one[::-1])], np.int64).reshape(-1, 2)
    return Graph(nodes, np.ascontiguousarray(both.T), None, molecule.name)


def _numbers(atom: Any, features: AtomFeatures) -> list[float]:
    row = list[float]()
    lists: Sequence[tuple[Any, Sequence[Any]]] = (
        (atom.GetSymbol(), features.elements),
        (atom.GetDegree(), features.degrees),
        (atom.GetTotalNumHs(), features.hydrogens),
    )
    for value, known in lists:
        row += [float(value == one) for one in known] + [float(value not in known)]
    return row + [REST[name](atom) for name in features.rest]


def look_of(molecule: Molecule) -> tuple[Look, Array]:
    """Return the drawing of a molecule, and its bonds, int64 [2, E], each once.

    It has RDKit's 2D coordinates, element symbols except carbon, and bond orders. Raises DataError if RDKit cannot read
    it.
    """
    found = parsed(molecule)
    from rdkit.Chem import Kekulize, rdDepictor

    rdDepictor.Compute2DCoords(found)
    Kekulize(found)  # aromatic rings are drawn with alternating single and double bonds
    places = found.GetConformer().GetPositions()[:, :2].astype(np.float32)
    orders = [max(1, min(3, round(bond.GetBondTypeAsDouble()))) for bond in found.GetBonds()]
    labels = [_label(atom) for atom in found.GetAtoms()]
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in found.GetBonds()]
    return Look(places, labels, np.array(orders, np.int8)), np.array(ends, np.int64).reshape(-1, 2).T


def _label(atom: Any) -> str:
    """Return the label of an atom: empty for a bonded carbon, else symbol, hydrogens and charge."""
    charge, hydrogens = atom.GetFormalCharge(), atom.GetTotalNumHs()
    if atom.GetSymbol() == "C" and not charge and atom.GetDegree():
        return ""
    sign = "" if not charge else ("+" if charge > 0 else "-") + (str(abs(charge)) if abs(charge) > 1 else "")
    return str(atom.GetSymbol()) + ("" if not hydrogens else f"H{hydrogens}" if hydrogens > 1 else "H") + sign


def read_molecules(file: Path, properties: Sequence[str], column: str | None = None) -> Molecules:
    """Read a file of molecules by its ending: :func:`read_sdf` or :func:`read_smiles`.

    Raises DataError if it cannot be read, and ConfigError if it has another ending.
    """
    ending = file.suffix.lower()
    if ending in SDF:
        return read_sdf(file, properties)
    if ending in TABLES:
        return read_smiles(file, properties, column)
    raise ConfigError(f"{file}: unsupported ending; pass a file of molecules: {' '.join(SDF + TABLES)}")
