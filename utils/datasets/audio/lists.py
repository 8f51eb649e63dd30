"""Lists of recordings in the usual formats of speech data: JSON lines, Kaldi, LibriSpeech, AISHELL-1, folders."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import not_a_file_reason, utf8_text
from tecoinfer_modelzoo.text import reason_of, shown_value
from utils.datasets.base import Rejected
from utils.datasets.folders import entries_of, walk
from utils.preprocess.audio.reading import MOST_SECONDS, NOT_SOUND, Recording, is_sound

LISTS = (".jsonl", ".json", ".scp", ".trans.txt")
"""File name endings of lists."""

PATH_KEYS = ("audio_filepath", "audio_file", "audio_path", "audio", "path", "file")
"""Keys of a JSON list that may hold the path, in order of precedence."""


class Row(NamedTuple):
    """A recording and its known values by name."""

    recording: Recording
    fields: Mapping[str, Any]


class Listed(NamedTuple):
    """The recordings of a list or folder, its unusable entries, and its path."""

    rows: list[Row]
    rejected: list[Rejected]
    source: Path


class _Entry(NamedTuple):
    """A line of a list: file and line number, the path as written, and the other values."""

    where: str
    path: str
    start: float = 0.0
    seconds: float | None = None
    name: str = ""
    fields: Mapping[str, Any] = {}


def listed_in(file: Path, roots: Sequence[Path]) -> Listed:
    """Return the recordings of a list; its paths are relative to the first of ``roots`` that has one of the files.

    Raises DataError if the file cannot be read or has an unsupported format.
    """
    if file.name.endswith(".trans.txt"):
        return _librispeech([file], file)
    if file.suffix == ".scp":
        return _kaldi(file, roots)
    return _json_lines(file, roots)


def of_folder(folder: Path, target: str | None, split: str | None) -> Listed:
    """Return the recordings of a folder, read through the list in it if there is one.

    ``target`` is the meaning of the subfolder names (``label`` or ``speaker``), ``split`` a part of AISHELL's ``wav/``.
    Raises DataError if the folder has no recording, or several lists.
    """
    if (folder / "wav.scp").is_file():
        return _kaldi(folder / "wav.scp", [folder, folder.parent])
    if (folder / "transcript").is_dir() and (folder / "wav").is_dir():
        return _aishell(folder, split)
    names = sorted(entry.name for entry in entries_of(folder) if not entry.name.startswith("."))
    lists = [name for name in names if name.endswith((".jsonl", "manifest.json"))]
    if len(lists) > 1:
        raise DataError(f"{folder}: {len(lists)} lists ({', '.join(lists[:3])}); pass the path of one of them")
    if lists:
        return _json_lines(folder / lists[0], [folder, folder.parent])
    direct = [name for name in names if is_sound(name) and (folder / name).is_file()]
    if not direct:
        transcripts = sorted(Path(top, name) for top, found in walk(folder) for name in found if _is_transcript(name))
        if transcripts:
            return _librispeech(transcripts, folder)
        if target in ("label", "speaker"):
            return _folder_per(folder, target)
    elif any(_is_transcript(name) for name in names):
        return _librispeech([folder / name for name in names if _is_transcript(name)], folder)
    return _flat(folder, names, direct)


def _is_transcript(name: str) -> bool:
    return name.endswith(".trans.txt") and not name.startswith(".")


def _flat(folder: Path, names: Sequence[str], direct: Sequence[str]) -> Listed:
    if not direct:
        what = "contains no recording" if names else "is empty"
        raise DataError(f"data folder {folder} {what}; it needs sound files (.wav, .flac) or a list of them")
    rejected = []
    for name in names:
        if (folder / name).is_dir():
            reason = "is a folder, and only recordings directly in the data folder are read"
            rejected.append(Rejected(folder / name, reason))
        elif name not in direct:
            rejected.append(Rejected(folder / name, _no_file(folder / name) if is_sound(name) else NOT_SOUND))
    return Listed([Row(Recording(folder / name), {}) for name in direct], rejected, folder)


def _no_file(path: Path) -> str:
    """Return why a path with the name of a recording is not a regular file."""
    if path.is_symlink():
        return f"is a link to {os.readlink(path)}, which is not a file; correct the link"
    return "is a pipe, a socket or a device, not a file; remove it"


def _folder_per(folder: Path, target: str) -> Listed:
    """Return the recordings below the subfolders of a folder, whose names are labels or speakers."""
    rows = [
        Row(Recording(Path(top, name)), {target: Path(top).relative_to(folder).parts[0]})
        for top, names in sorted(walk(folder))
        for name in sorted(names)
        if is_sound(name) and not name.startswith(".") and Path(top) != folder
    ]
    if not rows:
        raise DataError(f"data folder {folder} contains no recording; it needs a folder of sound files per {target}")
    return Listed(rows, [], folder)


def _json_lines(file: Path, roots: Sequence[Path]) -> Listed:
    entries, rejected = list[_Entry](), list[Rejected]()
    seen: dict[tuple[str, float, float | None], str] = {}
    for number, line in text_lines(file):
        where = f"{file.name}:{number}"
        found = _json_entry(line, where)
        if not isinstance(found, str):
            first = seen.setdefault((os.path.normpath(found.path), found.start, found.seconds), where)
            if first != where:
                found = f"{found.path} is already listed in {first}; remove one of the two"
        if isinstance(found, str):
            rejected.append(Rejected(Path(f"{file}:{number}"), found))
        else:
            entries.append(found)
    return _resolved(entries, rejected, file, roots)


def _json_entry(line: str, where: str) -> _Entry | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return f"not a JSON object ({reason_of(error)}); write one per line"
    if not isinstance(row, dict):
        return "not a JSON object; write one per line"
    key = next((key for key in PATH_KEYS if isinstance(row.get(key), str)), None)
    if key is None:
        wrong = next((key for key in PATH_KEYS if key in row), None)
        if wrong is not None:
            return f"{wrong} {shown_value(row[wrong])} is not a path; write it as a string"
        known = ", ".join(map(shown_value, list(row)[:6])) or "nothing"
        return f"no 'audio_filepath' among its keys ({known}); add the path of the recording under this key"
    start, seconds = row.get("offset", 0.0), row.get("duration")
    for name, value in (("offset", start), ("duration", seconds)):
        if value is not None and not is_time(value):
            return f"{name} {shown_value(value)} is not a number of seconds; correct it"
    if not isinstance(row.get("text", ""), str):
        return f"text {shown_value(row['text'])} is not a string; write the transcript in quotes"
    fields = {name: value for name, value in row.items() if name not in (key, "offset", "duration")}
    start = float(start or 0.0)
    name = f"{row[key]}@{start:g}" if start else ""
    return _Entry(where, row[key], start, None if seconds is None else float(seconds), name, fields)


def is_time(value: object) -> bool:
    """Return whether a value is a time in a recording: a number of seconds from 0 to :data:`MOST_SECONDS`."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= MOST_SECONDS


def _kaldi(scp: Path, roots: Sequence[Path]) -> Listed:
    """Return the recordings of a ``wav.scp``, cut by the ``segments`` file next to it if there is one."""
    rejected, entries, recordings = list[Rejected](), list[_Entry](), dict[str, tuple[str, str]]()
    texts, speakers = (_table(scp.parent / name, rejected) for name in ("text", "utt2spk"))
    for number, key, rest in _pairs(scp):
        if rest.endswith("|") or rest.startswith("|"):
            reason = f"{scp.name}:{number} is a command, and commands are not run; write its sound to a file"
            rejected.append(Rejected(Path(key), reason))
        elif key in recordings:
            rejected.append(Rejected(Path(key), f"{scp.name}:{number}: already listed in {recordings[key][0]}"))
        else:
            recordings[key] = (f"{scp.name}:{number}", rest)
    segments = scp.parent / "segments"
    if not segments.is_file():
        entries = [_Entry(where, path, name=key) for key, (where, path) in recordings.items()]
    else:
        refused = {str(one.path) for one in rejected}
        for number, key, rest in _pairs(segments):
            found = _segment(key, rest, f"{segments.name}:{number}", recordings)
            if isinstance(found, str):
                of = rest.split()[0] if rest.split() else ""
                rejected.append(Rejected(Path(key), f"its recording {of} was rejected" if of in refused else found))
            else:
                entries.append(found)
    known = {one.name for one in entries} | {one.path.name for one in rejected}
    where = "segments" if segments.is_file() else scp.name
    rejected += [Rejected(Path(key), f"is in text, but not in {where}") for key in texts if key not in known]
    tables = {"text": texts, "speaker": speakers}
    for place, one in enumerate(entries):
        fields = {key: table[one.name] for key, table in tables.items() if one.name in table}
        entries[place] = one._replace(fields=fields)
    return _resolved(entries, rejected, scp, roots)


def _segment(key: str, rest: str, where: str, recordings: Mapping[str, tuple[str, str]]) -> _Entry | str:
    parts = rest.split()
    if len(parts) not in (3, 4):
        return f"{where} is not 'utterance recording start end'; correct the line"
    if parts[0] not in recordings:
        return f"{where}: its recording {parts[0]} is not in wav.scp"
    try:
        start, end = float(parts[1]), float(parts[2])
    except ValueError:
        return f"{where}: {shown_value(parts[1])} to {shown_value(parts[2])} are not seconds; correct the line"
    if not is_time(start) or not (end == -1 or start < end <= MOST_SECONDS):
        return f"{where}: {parts[1]} s to {parts[2]} s is not a part of a recording; correct the line"
    return _Entry(where, recordings[parts[0]][1], start, None if end == -1 else end - start, key)


def _table(file: Path, rejected: list[Rejected]) -> dict[str, str]:
    """Return a Kaldi file of keys and values; empty if it is missing. Repeated keys with another value are rejected."""
    found: dict[str, str] = {}
    for number, key, rest in _pairs(file) if file.is_file() else ():
        if found.setdefault(key, rest) != rest:
            rejected.append(Rejected(Path(f"{file}:{number}"), f"{key} has another line before; remove one of the two"))
    return found


def _pairs(file: Path) -> Iterator[tuple[int, str, str]]:
    for number, line in text_lines(file):
        key, _, rest = line.strip().partition(" ") if " " in line.strip() else line.strip().partition("\t")
        yield number, key, rest.strip()


def _librispeech(transcripts: Sequence[Path], source: Path) -> Listed:
    """Return the recordings of chapters: files ``speaker-chapter-number`` next to the list of their transcripts."""
    rows, rejected = list[Row](), list[Rejected]()
    for file in transcripts:
        listed = set()
        beside = {Path(entry.name).stem: entry.name for entry in entries_of(file.parent) if is_sound(entry.name)}
        for number, key, text in _pairs(file):
            if key in listed:
                rejected.append(Rejected(file.parent / key, f"{file.name}:{number}: already listed; remove one line"))
                continue
            listed.add(key)
            if key in beside:
                fields = {"text": text, "speaker": key.partition("-")[0]}
                rows.append(Row(Recording(file.parent / beside[key], name=key), fields))
            else:
                rejected.append(Rejected(file.parent / key, f"{file.name}:{number}: its .flac or .wav is missing"))
        rejected += [
            Rejected(file.parent / name, f"not in {file.name}") for key, name in beside.items() if key not in listed
        ]
    return Listed(sorted(rows, key=lambda row: row.recording.name), rejected, source)


def _aishell(folder: Path, split: str | None) -> Listed:
    """Return the recordings below ``wav/`` (or a part of it) with their transcripts in ``transcript/*.txt``."""
    top = folder / "wav" / (split or "")
    if not top.is_dir():
        parts = ", ".join(sorted(entry.name for entry in entries_of(folder / "wav") if entry.is_dir()))
        raise DataError(f"{folder}: no part {split!r} in wav/ (available: {parts or 'none'}); correct --split")
    texts: dict[str, str] = {}
    for file in sorted((folder / "transcript").glob("*.txt")):
        texts |= {key: "".join(text.split()) for _, key, text in _pairs(file)}
    rows, rejected = list[Row](), list[Rejected]()
    for where, names in sorted(walk(top)):
        for name in sorted(name for name in names if is_sound(name) and not name.startswith(".")):
            key = Path(name).stem
            if key in texts:
                fields = {"text": texts[key], "speaker": Path(where).name}
                rows.append(Row(Recording(Path(where, name), name=key), fields))
            else:
                rejected.append(Rejected(Path(where, name), "not in the transcript"))
    return Listed(rows, rejected, folder)


def _resolved(entries: Sequence[_Entry], rejected: list[Rejected], source: Path, roots: Sequence[Path]) -> Listed:
    root = next((root for root in roots if any(os.path.isfile(root / one.path) for one in entries)), roots[0])
    rows = []
    for one in entries:
        path = Path(os.path.normpath(root / one.path))
        reason = _unusable(path, root, one.path)
        if reason is None:
            rows.append(Row(Recording(path, one.start, one.seconds, one.name), one.fields))
        else:
            rejected.append(Rejected(path, f"{reason} ({one.where})"))
    return Listed(rows, rejected, source)


def _unusable(path: Path, root: Path, name: str) -> str | None:
    """Return why a listed path cannot be a sample; ``None`` if it can."""
    # Compares names only: links may lead out of the root, since data sets are often assembled from links.
    if not (os.path.abspath(path) + os.sep).startswith(os.path.join(os.path.abspath(root), "")):
        return f"the listed path {name!r} leaves the data folder {root}; set another folder with audio=FOLDER"
    if not os.path.isfile(path):  # also False for a name that no file can have
        return f"it is listed, but it {not_a_file_reason(path)}; correct the path"
    return None if is_sound(path.name) else NOT_SOUND


def text_lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-empty lines of a list with their numbers; raise DataError if it cannot be read, or is not UTF-8."""
    for number, line in enumerate(utf8_text(file).split("\n"), 1):
        if line.strip():
            yield number, line.removesuffix("\r")
