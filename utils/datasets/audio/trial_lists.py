"""Lists of trials: VoxCeleb's ``1 a.wav b.wav``, Kaldi's ``utt1 utt2 target``, and tables with named columns.

The format of a list follows from its first line. Speakers are taken from ``utt2spk`` if there is one, else from the
first folder of the paths (``id10270/...``) if every line agrees with it, else from the list itself: recordings that a
line labels as the same speaker are grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import DataError
from tecoinfer_modelzoo.files import utf8_text
from utils.datasets.audio.recordings import load_sounds
from utils.datasets.audio.trials import Trials, Voices
from utils.datasets.base import Rejected, root_of
from utils.preprocess.audio.reading import NOT_SOUND, Recording, is_sound

LISTS = ("trials", "trials.txt", "trials.tsv", "trials.lst", "veri_test2.txt", "veri_test.txt", "pairs.tsv")
"""A folder that has a file with one of these names is loaded through it; the first name takes precedence."""

SOUNDS = ("wav", "wavs", "audio", "voxceleb1_test_v2", "data")
"""Folders next to a list that its paths may be relative to."""

SAME = {"1": True, "0": False, "target": True, "nontarget": False, "tgt": True, "imp": False, "same": True}
SAME |= {"different": False, "true": True, "false": False}
"""Words for the same speaker and for two speakers."""

COLUMNS = {
    "first": ("first", "enrol", "enroll", "utt1", "modelid", "file1", "path1"),
    "second": ("second", "test", "utt2", "segmentid", "file2", "path2"),
    "same": ("same", "label", "target", "targettype", "is_target"),
}
"""Accepted column names of a table."""

FORMS = "'1 a.wav b.wav', 'utt1 utt2 target', or a table with columns first, second and same"


class Line(NamedTuple):
    """A line of a list: its number, two names, and whether they are the same speaker, if stated."""

    number: int
    first: str
    second: str
    same: bool | None


def load_trials(file: Path, audio: Path | None = None, speakers: Path | None = None) -> Trials:
    """Load the trials of a list, in its order; lines that cannot be used are in ``rejected``.

    Args:
        file: the list, UTF-8.
        audio: the folder that its paths are relative to, or a ``wav.scp`` that maps names to paths; ``None``: a
            ``wav.scp`` next to the list, else the list's folder, or one of :data:`SOUNDS` in it.
        speakers: ``utt2spk``; ``None``: the one next to the list, if any.

    Raises DataError if a file cannot be read, or no trial can be used.
    """
    rejected: list[Rejected] = []
    lines = list(_parsed(file, rejected))
    found, root = _finder(file, audio, lines)
    kept: list[tuple[Line, Recording, Recording]] = []
    for line in lines:
        try:
            kept.append((line, found(line.first), found(line.second)))
        except LookupError as error:
            rejected.append(Rejected(Path(f"{file}:{line.number}"), str(error.args[0])))
    named = _speakers(file, speakers, [line for line, _, _ in kept])
    kept = [row for row in kept if not _contradicts(file, row[0], named, rejected)]
    if not kept:
        first = f"; the first of {len(rejected)} reasons: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file}: no trial can be used{first}; write lines as {FORMS}, with recordings in {root}")
    return _trials(kept, named, rejected, root)


def _trials(
    kept: Sequence[tuple[Line, Recording, Recording]],
    named: Mapping[str, str] | None,
    rejected: list[Rejected],
    root: Path,
) -> Trials:
    recordings: dict[Recording, int] = {}
    owners: list[str] = []
    pairs = []
    for line, first, second in kept:
        for name, recording in ((line.first, first), (line.second, second)):
            if recording not in recordings:
                recordings[recording] = len(recordings)
                owners.append("" if named is None else named[name])
        pairs.append((recordings[first], recordings[second]))
    names = sorted(set(owners))
    places = {name: place for place, name in enumerate(names)}
    who = np.array([places[owner] for owner in owners], np.int32)
    known = named is not None
    voices = Voices(list(recordings), who if known else None, names if known else [], who, rejected, root)
    return Trials(voices, np.array(pairs, np.int32))


def _parsed(file: Path, rejected: list[Rejected]) -> Iterator[Line]:
    """Yield the trials of a list; invalid lines are rejected."""
    rows = [(number, _columns(text)) for number, text in _lines(file)]
    if not rows:
        raise DataError(f"{file}: the list is empty; write lines as {FORMS}")
    order = _order(rows[0][1])
    if order is None:
        raise DataError(f"{file}:{rows[0][0]}: {' '.join(rows[0][1])[:80]!r} is not a trial; write lines as {FORMS}")
    header = rows[0][1][order[0]].lower() in COLUMNS["first"]
    width = len(rows[0][1])
    for number, columns in rows[1:] if header else rows:
        where = Path(f"{file}:{number}")
        if len(columns) != width:
            rejected.append(Rejected(where, f"{len(columns)} columns, but the first line has {width}; correct it"))
            continue
        first, second = columns[order[0]], columns[order[1]]
        word = None if order[2] is None else columns[order[2]]
        if word is not None and word.lower() not in SAME:
            rejected.append(Rejected(where, f"{word!r} must be 1, 0, target or nontarget; correct it"))
        elif first == second:
            rejected.append(Rejected(where, f"compares {first} with itself; list two recordings"))
        else:
            yield Line(number, first, second, None if word is None else SAME[word.lower()])


def _columns(text: str) -> list[str]:
    return [column.strip() for column in text.split("\t")] if "\t" in text else text.split()


def _order(columns: Sequence[str]) -> tuple[int, int, int | None] | None:
    """Return the columns of both names and of the label; ``None`` if the first line is not a trial."""
    lower = [column.lower() for column in columns]
    named = {key: next((lower.index(name) for name in names if name in lower), None) for key, names in COLUMNS.items()}
    if named["first"] is not None and named["second"] is not None:
        return named["first"], named["second"], named["same"]
    if len(columns) == 2:
        return 0, 1, None
    if len(columns) != 3:
        return None
    if lower[2] in SAME and not (lower[0] in ("0", "1") and is_sound(lower[2])):
        return 0, 1, 2
    return (1, 2, 0) if lower[0] in SAME else None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(utf8_text(file).splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line.strip()


def _finder(file: Path, audio: Path | None, lines: Sequence[Line]) -> tuple[Callable[[str], Recording], Path]:
    """Return a function from a name to its recording (LookupError if it is missing), and the folder of recordings."""
    scp = audio if audio is not None and audio.suffix == ".scp" else file.parent / "wav.scp"
    if audio is not None and audio.is_dir() and (audio / "wav.scp").is_file():
        scp = audio / "wav.scp"
    if scp.is_file():
        try:
            foreign = audio is not None and audio.is_dir() and audio != scp.parent
            sounds = load_sounds({"manifest": scp, "audio": audio} if foreign and audio else scp, target=None)
        except DataError as error:
            raise DataError(str(error).replace("manifest=FILE", "pairs=FILE")) from error
        by_name: dict[str, Recording] = {one.name: one for one in sounds.samples}
        lost = {str(one.path): one.reason for one in sounds.rejected}

        def listed(name: str) -> Recording:
            if name not in by_name:
                raise LookupError(f"{name!r} is not in {scp}{f' ({lost[name]})' if name in lost else ''}")
            return by_name[name]

        return listed, scp.parent
    if audio is not None and not audio.is_dir():
        raise DataError(f"data path audio={audio} must be a folder or a wav.scp; check the path")
    root = _root(file, lines) if audio is None else audio

    def placed(name: str) -> Recording:
        ends = ("",) if is_sound(name) else (".wav", ".flac")
        path = next((root / f"{name}{end}" for end in ends if (root / f"{name}{end}").is_file()), None)
        if path is None:
            raise LookupError(f"recording {name!r} is not in {root}; correct the path, or pass audio=FOLDER")
        if not is_sound(path.name):
            raise LookupError(f"{name!r}: {NOT_SOUND}")
        return Recording(path)

    return placed, root


def _root(file: Path, lines: Sequence[Line]) -> Path:
    """Return the folder that has the first recording found, the list's own if none is found."""
    places = [file.parent, *(file.parent / name for name in SOUNDS)]
    for line in lines[:20]:
        for place in places:
            if any((place / f"{line.first}{end}").is_file() for end in ("", ".wav", ".flac")):
                return place
    return file.parent


def _speakers(file: Path, given: Path | None, lines: Sequence[Line]) -> dict[str, str] | None:
    """Return the speaker of each recording; ``None`` if unknown."""
    names = list(dict.fromkeys(name for line in lines for name in (line.first, line.second)))
    beside = file.parent / "utt2spk" if given is None else given
    if given is not None or beside.is_file():
        table = dict(text.split(maxsplit=1) for _, text in _lines(beside) if len(text.split(maxsplit=1)) == 2)
        unknown = next((name for name in names if name not in table), None)
        if unknown is not None:
            raise DataError(f"{beside}: has no speaker of {unknown!r}, which {file} lists; add a line for it")
        return {name: table[name] for name in names}
    if any(line.same is None for line in lines):
        return None
    if all("/" in name.lstrip("./") for name in names):
        owners = {name: name.lstrip("./").split("/")[0] for name in names}
        if all((owners[line.first] == owners[line.second]) == line.same for line in lines):
            return owners
    return _joined(names, lines)


def _joined(names: Sequence[str], lines: Sequence[Line]) -> dict[str, str]:
    """Group recordings that the list labels as the same speaker; a group's name is that of its first recording."""
    leader = {name: name for name in names}
    for line in lines:
        if line.same:
            leader[root_of(leader, line.second)] = root_of(leader, line.first)
    return {name: root_of(leader, name) for name in names}


def _contradicts(file: Path, line: Line, named: Mapping[str, str] | None, rejected: list[Rejected]) -> bool:
    """Return whether a line contradicts the known speakers; such a line is rejected."""
    if named is None or line.same is None:
        return False
    first, second = named[line.first], named[line.second]
    if (first == second) == line.same:
        return False
    word, other = ("one speaker", "two") if line.same else ("two speakers", "one")
    reason = f"says {word}, but by utt2spk or other lines it is {other} ({first}, {second}); correct it"
    rejected.append(Rejected(Path(f"{file}:{line.number}"), reason))
    return True
