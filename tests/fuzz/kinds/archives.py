"""``teco fetch``: hostile archives, a modified cache, and registries with arbitrary answers."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case, Outcome
from tests.fuzz.fetching import HOWS
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.names import not_a_file_reason
from tests.helpers.fetch_archives import FILES, MEMBERS, UNPACKED, ar, tar_bytes

WARM = ("yaml", "engine", "utils.fetch", "toolkit.cli", "toolkit.commands.fetch", "tests.fuzz.fetching", "http.server")

KINDS = {"whl": ("pip", "wheel"), "tar.gz": ("pip", "sdist"), "tgz": ("npm", "tgz"), "deb": ("debian", "deb")}
WANTED = {name: content for name, content in FILES.items() if "model" in name}


def make(rng: random.Random, folder: Path, number: int) -> Case:
    makers = (_hostile, _hostile, _broken, _cache, _server, _bomb, _hostile, _table)
    return makers[number % len(makers)](rng, folder)


# ----------------------------------------------------------------------------------------------------------- archives


def _row(folder: Path, content: bytes, ending: str, **other: Any) -> None:
    registry, kind = KINDS[ending]
    row: dict[str, Any] = {
        "name": "mine",
        "what": "made-up files",
        "registry": registry,
        "kind": kind,
        "package": "mine",
        "version": "1.0",
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "unpacked": UNPACKED,
        "members": list(MEMBERS),
        "licence": "MIT",
        "read_in": "LICENSE",
        "use": "tests",
        **({"pool": "main/m/mine"} if registry == "debian" else {}),
        **other,
    }
    place = folder / "tables" / "fetch"
    place.mkdir(parents=True, exist_ok=True)
    (place / "__init__.py").touch()
    (place / "mine.yaml").write_text(json.dumps([row]))


def _zip(entries: list[tuple[str, bytes, int]], rng: random.Random) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", rng.choice((zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_LZMA))) as archive:
        for name, content, mode in entries:
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = archive.compression
            archive.writestr(info, content)
    return out.getvalue()


def _tar(entries: list[tuple[str, bytes, Any]], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for name, content, change in entries:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            for key, value in (change or {}).items():
                setattr(info, key, value)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


OUT = "/tmp/fuzz_out"  # noqa: S108 -- where a member says it wants to be

NAMES = (
    *(
        "../out",
        "mine/model/../../../out",
        OUT,
        "mine\\model\\..\\out",
        "C:out",
        "mine/model/a\nb",
        "x" * 255,
    ),
    *(
        "mine/model/" + "n" * 256,
        "mine/model/" + "d/" * 2000 + "x",
        "mine/model/\x1b[31m",
        "mine/model/A.bin",
        "./mine/model/x",
    ),
    *(
        "mine/model/a.bin",
        "mine/model/a.bin/under",
        "mine/model//twice",
        "mine/model/.",
        "mine/model/..",
        "",
        ".",
        "mine",
    ),
    *(
        "mine/model",
        "mine/model/con",
        "mine/model/\u202egnp",
        "mine/model/\u00e9",
        "mine/model/e\u0301",
        "mine/model/.lock",
    ),
)


def _made(rng: random.Random, ending: str) -> tuple[bytes, str]:
    """Return an archive with one or two hostile members."""
    wanted = list(FILES.items())
    added = [(rng.choice(NAMES), rng.choice((b"", b"odd", b"a" * 3000))) for _ in range(rng.choice((0, 1, 1, 2)))]
    done = f"with {[name[:40] for name, _ in added]}"
    if ending == "whl":
        modes = (0, 0, 0o100644, 0o120777, 0o010644, 0o020644, 0o040755, 0o104755)
        entries = [(name, content, 0) for name, content in wanted]
        entries += [(name or "x", content, rng.choice(modes)) for name, content in added]
        rng.shuffle(entries)
        return _zip(entries, rng), done
    links: list[tuple[str, bytes, Any]] = [(name, content, None) for name, content in wanted]
    links += [(name, content, None) for name, content in added]
    for _ in range(rng.choice((0, 0, 1, 2))):
        kind = rng.choice(
            (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, b"?")
        )
        where = rng.choice(("../../out", "/etc/passwd", "mine/model/a.bin", ".", "/dev/zero"))
        name = rng.choice(("mine/model/link", "mine/model", "mine/model/deep", "link", "mine/model/a.bin"))
        links.insert(
            rng.randrange(len(links) + 1), (name, b"", {"type": kind, "linkname": where, "devmajor": 1, "devminor": 5})
        )
        done += f", {name} of type {kind!r}"
    if rng.random() < 0.1:
        links[0][2] or links.append(("mine/model/x", b"", {"pax_headers": {"size": "99999999999", "path": "../out"}}))
        done += ", pax headers"
    content = _tar(links)
    if ending != "deb":
        return gzip.compress(content, 1), done
    suffix, pack = rng.choice((("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)))
    parts = {"debian-binary": b"2.0\n", f"data.tar{suffix}": pack(content)}
    return ar(parts), done


def judge_of(folder: Path, good: bool | None) -> Callable[[Outcome], str | None]:
    """Return a finding if files outside are written, or cached files are wrong.

    Args:
        folder: of the case. good: whether the command must succeed, or must not; ``None``: it may.
    """
    before = _tree(folder)

    def judge(outcome: Outcome) -> str | None:
        outside = _tree(folder) - before
        if outside or Path(OUT).exists():
            return f"written outside: {sorted(outside)[:3]}"
        kept = [path for path in (folder / "kept" / "mine").glob("1.0-*") if path.is_dir()] if not outcome.code else []
        if good is not None and (outcome.code == 0) != good:
            return f"exit code {outcome.code}: {(outcome.err or outcome.out).strip()[-200:]}"
        for path in kept:
            found = {str(one.relative_to(path)) for one in path.rglob("*") if not one.is_dir() or one.is_symlink()}
            links = [name for name in found if (path / name).is_symlink() or not (path / name).is_file()]
            wrong = [
                name for name, content in WANTED.items() if name in found and (path / name).read_bytes() != content
            ]
            if links or (good and wrong) or (good and not found >= set(WANTED)):
                return f"kept files are wrong: {links or wrong or sorted(found)[:5]}"
        return None

    return judge


def _tree(folder: Path) -> set[str]:
    """Return the files in a case's folder outside the cache."""
    found = set()
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if name != "kept"]
        found |= {os.path.join(place, name) for name in (*folders, *files) if not name.endswith(".pyc")}
    return {name for name in found if not name.endswith("__pycache__")}


def _case(
    folder: Path,
    what: str,
    *words: str,
    good: bool | None = None,
    env: Mapping[str, str] | None = None,
) -> Case:
    usual = {"TECO_FETCH_DIR": str(folder / "kept"), "PIP_CONFIG_FILE": os.devnull, "PIP_RETRIES": "0"}
    front = ("-m", "tests.fuzz.fetching", str(folder), "fetch")
    return Case((*front, *words), what, judge_of(folder, good), env={**usual, **(env or {})}, most_memory=1 << 30)


def _from(folder: Path, content: bytes, ending: str) -> tuple[str, ...]:
    (folder / f"mine-1.0.{ending}").write_bytes(content)
    return "mine", "--from", str(folder / f"mine-1.0.{ending}")


def _hostile(rng: random.Random, folder: Path) -> Case:
    ending = rng.choice(list(KINDS))
    content, done = _made(rng, ending)
    members = rng.choice((list(MEMBERS), ["**"], ["mine/**"], ["mine/model/*", "mine/model/deep/b.txt"]))
    _row(folder, content, ending, members=members, unpacked=rng.choice((UNPACKED, UNPACKED, 6006, 3009, 10**12)))
    if rng.random() < 0.15:
        content, how = mutated(content, rng)
        return _case(folder, f"{ending} {done}, then {how}", *_from(folder, content, ending))
    return _case(folder, f"{ending} {done}", *_from(folder, content, ending))


def _plain(ending: str) -> bytes:
    if ending == "whl":
        return _zip([(name, content, 0) for name, content in FILES.items()], random.Random(0))
    if ending == "deb":
        return ar({"debian-binary": b"2.0\n", "data.tar.xz": tar_bytes(FILES, "./", "w:xz")})
    return tar_bytes(FILES)


def _broken(rng: random.Random, folder: Path) -> Case:
    """Change an archive; half of the rows have its hash, as in a hostile table."""
    ending = rng.choice(list(KINDS))
    whole = _plain(ending)
    content, done = mutated(whole, rng, rng.choice((1, 3, 8)))
    if rng.random() < 0.1:
        content, done = (
            rng.choice((b"", b"PK", b"!<arch>\n", b"\x1f\x8b", bytes(1024), b"<html>404</html>")),
            "another file",
        )
    trusted = rng.random() < 0.7
    _row(folder, content if trusted else whole, ending)
    good = None if trusted else content == whole
    return _case(
        folder,
        f"{ending}, {done}, {'its own' if trusted else 'the right'} hash",
        *_from(folder, content, ending),
        good=good,
    )


def _bomb(rng: random.Random, folder: Path) -> Case:
    """Write an archive that unpacks to much more than declared."""
    size = rng.choice((10**8, 10**9))
    how = rng.choice(("zip", "lying zip", "tar", "xz", "nested", "many", "zst", "pax"))
    ending, members = "whl", ["mine/**"]
    if how in ("zip", "lying zip", "nested"):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("mine/model/a.bin", bytes(10**8))
        content = out.getvalue()
        if how == "lying zip":
            content = content.replace((10**8).to_bytes(4, "little"), (3000).to_bytes(4, "little"))
        if how == "nested":
            content = _zip([("mine/inner.zip", content, 0)], rng)
            members = ["mine/inner.zip/**"]
    elif how == "many":
        content = _zip([(f"mine/model/{place}", b"", 0) for place in range(2_000)], rng)
    elif how == "pax":
        head = {"pax_headers": {"comment": "x" * 20_000_000}}
        content, ending = gzip.compress(_tar([("mine/model/a.bin", b"", head)]), 1), "tgz"
    else:
        info = tarfile.TarInfo("mine/model/a.bin")
        info.size = size
        head = info.tobuf()
        if how == "tar":
            content, ending = gzip.compress(head + bytes(10**8), 1), "tgz"
        else:
            packed = lzma.compress(head + bytes(10**8), preset=0)
            suffix = ".xz" if how == "xz" else ".zst"
            content, ending = ar({"debian-binary": b"2.0\n", f"data.tar{suffix}": packed}), "deb"
    _row(folder, content, ending, members=members, unpacked=rng.choice((UNPACKED, 10**12)))
    return _case(folder, f"a bomb: {how} of {size}", *_from(folder, content, ending))


# -------------------------------------------------------------------------------------------------------------- cache


def _cache(rng: random.Random, folder: Path) -> Case:
    """Modify the cache first; fetched files must be correct, or an error raised."""
    ending = rng.choice(list(KINDS))
    content = _plain(ending)
    _row(folder, content, ending)
    words = _from(folder, content, ending)
    from utils.fetch.table import read_table

    (package,) = read_table(folder / "tables" / "fetch" / "mine.yaml")
    home = folder / "kept" / "mine"
    (folder / "victim").mkdir()
    (folder / "victim" / "precious").write_bytes(b"precious")
    done = rng.choice(
        ("home", "file", "lock", "sizes", "target", "part", "read only", "sizes text", "inside", "cache file")
    )
    if done == "home":
        home.parent.mkdir()
        home.symlink_to(folder / "victim")
    elif done == "cache file":
        done += not_a_file_reason(rng, folder / "kept")
    else:
        home.mkdir(parents=True)
        target, sizes = home / package.key, home / f"{package.key}.sizes.json"
        if done == "file":
            home.rmdir()
            done += not_a_file_reason(rng, home)
        elif done == "lock":
            done += not_a_file_reason(rng, home / ".lock")
        elif done == "sizes":
            done += not_a_file_reason(rng, sizes)
        elif done == "target":
            done += not_a_file_reason(rng, target) if rng.random() < 0.5 else _link(target, folder / "victim")
        elif done == "part":
            done += _link(home / ".part-x", folder / "victim")
        elif done == "read only":
            home.chmod(0o500)
        else:
            target.mkdir()
            value = rng.choice(
                ({}, [], None, 5, "x", {"../../victim/precious": 8}, {"mine/model/a.bin": 3000}, {"a": None})
            )
            text = rng.choice((json.dumps(value), "", "{", "[" * 900, "\xff", '{"a":' * 2000))
            sizes.write_text(text)
            if done == "inside":
                done += not_a_file_reason(rng, target / "mine")
            done += f" {text[:60]!r}"
    case = _case(folder, f"{ending} with a cache: {done}", *words)
    outer = case.judge

    def judge(outcome: Outcome) -> str | None:
        if not (folder / "victim" / "precious").exists():
            return "a file outside was removed through a link"
        grown = [one.name for one in (folder / "victim").iterdir() if one.name != "precious"]
        if grown and not home.is_symlink():
            return f"written outside through a link: {grown[:3]}"
        return outer(outcome) if not home.is_symlink() else None

    if rng.random() < 0.2:
        return Case((*case.words[:5], "--remove"), case.what + ", removed", judge, env=case.env)
    return Case(case.words, case.what, judge, env=case.env)


def _link(path: Path, to: Path) -> str:
    path.symlink_to(to)
    return " a link"


# ------------------------------------------------------------------------------------------------------ registries


def _server(rng: random.Random, folder: Path) -> Case:
    ending = rng.choice(("tar.gz", "tgz", "deb", "tar.gz", "tgz"))
    content = _plain(ending)
    other = {"sha256": "0" * 64} if rng.random() < 0.2 else {}
    _row(folder, content, ending, members=["mine/model/**"], **other)
    name = {"tar.gz": "mine-1.0.tar.gz", "tgz": "mine-1.0.tgz", "deb": "mine_1.0_all.deb"}[ending]
    (folder / name).write_bytes(content)
    page, how_page, how_file = folder / "page", rng.choice(("ok", "ok", "ok", *HOWS)), rng.choice(HOWS)
    if ending == "tgz":
        tarball: Any = rng.choice(
            ("ok", "ok", "ok", 5, None, "http://[bad", "file:///etc/passwd", "ftp://x/y", "\x1b[31m", "//")
        )
        tarball = f"http://127.0.0.1:PORT/{name}" if tarball == "ok" else tarball
        page.write_text(json.dumps({"versions": {"1.0": {"dist": {"tarball": tarball}}}}))
    else:
        links = rng.choice(
            (name, name, f"../../{name}", "http://[x", f"{name}#sha256=%FF", "file:///etc/" + name, "\x00" + name)
        )
        files: list[Any] = [{"filename": name, "url": links, "hashes": {}}]
        files += rng.choice(([], [{"filename": 5, "url": 5, "hashes": 5}], [None], [{"filename": "x"}]))
        as_json = json.dumps({"files": files})
        page.write_text(
            rng.choice((as_json, f"<a href='{links}'>{name}</a>", "[" * 9000, "{" * 9000, '{"files": ' + "[" * 9000))
        )
    plan = {name: (how_file, str(folder / name)), "mine": (how_page, str(page)), "": ("404", "")}
    (folder / "plan.json").write_text(json.dumps(plan))
    env = {"PATH": "/nonexistent", "PIP_DEFAULT_TIMEOUT": "5", "no_proxy": "*"}
    good = False if other or how_file in ("404", "500", "html", "short", "half", "close", "empty") else None
    return _case(folder, f"{ending}: page {how_page}, file {how_file}", "mine", good=good, env=env)


# -------------------------------------------------------------------------------------------------------------- tables


def _table(rng: random.Random, folder: Path) -> Case:
    """Change the table itself."""
    content = _plain("whl")
    values: tuple[Any, ...] = (
        None,
        "",
        5,
        -1,
        True,
        [],
        {},
        "../x",
        "x" * 5000,
        "\x1b[31m",
        10**30,
        1.5,
        ["**"],
        ["../*"],
        [5],
    )
    keys = ("name", "registry", "kind", "package", "version", "sha256", "size", "unpacked", "members", "pool", "odd")
    changed = {key: rng.choice(values) for key in rng.sample(keys, rng.randint(1, 3))}
    _row(folder, content, "whl", **changed)
    words = (
        _from(folder, content, "whl") if rng.random() < 0.7 else rng.choice(((), ("--json",), ("none",), ("\x1b[31m",)))
    )
    if rng.random() < 0.3:
        text = folder / "tables" / "fetch" / "mine.yaml"
        text.write_bytes(mutated(text.read_bytes(), rng)[0])
    if rng.random() < 0.1:
        (folder / "tables" / "fetch" / "mine.yaml").unlink()
        not_a_file_reason(rng, folder / "tables" / "fetch" / "mine.yaml")
    return _case(folder, f"a table with {str(changed)[:200]}", *words)
