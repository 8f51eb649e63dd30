"""Networks in Planetoid's pickles and in OGB's tables, damaged: odd opcodes, bombs, inconsistent parts."""

from __future__ import annotations

import gzip
import pickle
import random
from pathlib import Path
from typing import Any

from tests.fuzz.makers.arrays_of import Runs
from tests.fuzz.makers.bytes_of import mutated
from tests.fuzz.makers.tables_of import spoiled
from tests.fuzz.names import not_a_file_reason

OPCODES = (
    b"(",
    b"0",
    b"1",
    b"2",
    b"c__builtin__\neval\n",
    b"cos\nsystem\n",
    b"R",
    b"b",
    b"o",
    b"i",
    b"\x80\x05",
    b"}",
    b"u",
)
OPCODES += (
    b"\x8b\xff\xff\xff\x7f",
    b"X\xff\xff\xff\xff",
    b"B\xff\xff\xff\x7f",
    b"\x8e" + b"\xff" * 8,
    b"h\xff",
    b"l",
    b"d",
)
OPCODES += (b"j\xff\xff\xff\xff", b"r\xff\xff\xff\x7f", b"]" * 5000 + b"a" * 4999, b"(" * 5000 + b"t" * 4999, b"2" * 9)
OPCODES += (b"]q\x00h\x00a", b"\x8a\xff" + b"\x01" * 255, b"N", b".", b"cnumpy\ndtype\n", b"Vx\n", b"\x85" * 3000)


def planetoid(rng: random.Random, folder: Path) -> tuple[Path, str]:
    """Write a network, and return its path and a description of the change."""
    import numpy as np
    import scipy.sparse as sparse

    network = folder / "net"
    network.mkdir()
    chance = np.random.default_rng(rng.randrange(99))
    rows = sparse.csr_matrix((chance.random((20, 64)) < 0.2).astype("f4"))
    ones = np.eye(10, dtype=np.int32)[chance.integers(0, 10, 20)]
    links = {node: [int(one) for one in chance.integers(0, 20, 3)] for node in range(20)}
    parts: dict[str, Any] = {
        "x": rows[:4],
        "y": ones[:4],
        "allx": rows[:14],
        "ally": ones[:14],
        "tx": rows[14:],
        "ty": ones[14:],
    }
    parts["graph"] = links
    done = []
    for name, part in parts.items():
        if rng.random() < 0.1:
            part = rng.choice(
                (Runs(), [1], {"a": [2]}, {1: [10**9]}, {-5: [-1]}, {2**70: [1]}, ones.T, None, b"x", {1: 5})
            )
            done.append(f"{name} another object")
        content = pickle.dumps(part, rng.choice((2, 2, 2, 0, 3, 4, 5)))
        if rng.random() < 0.12:
            place = rng.randrange(2, len(content))
            added = b"".join(rng.choices(OPCODES, k=rng.randint(1, 4)))
            content = content[:place] + added + content[place:] if rng.random() < 0.6 else b"\x80\x02" + added + b"."
            done.append(f"{name} opcodes")
        if rng.random() < 0.1:
            content, how = mutated(content, rng)
            done.append(f"{name}: {how}")
        (network / f"ind.net.{name}").write_bytes(content)
    index = "".join(f"{one}\n" for one in range(14, 20))
    if rng.random() < 0.2:
        index = rng.choice(
            (
                "",
                "14\n" * 6,
                "-1\n",
                "9999999999\n" * 6,
                "4000000000\n15\n16\n17\n18\n19\n",
                "x",
                "\u0661\n",
                index[:-3],
            )
        )
        done.append(f"index {index[:20]!r}")
    (network / "ind.net.test.index").write_text(index)
    if rng.random() < 0.1:
        name = rng.choice((*parts, "test.index"))
        (network / f"ind.net.{name}").unlink()
        done.append(not_a_file_reason(rng, network / f"ind.net.{name}"))
    given = network if rng.random() < 0.7 else network / "ind.net.graph"
    return given, ", ".join(done)


def ogb(rng: random.Random, folder: Path) -> tuple[bool, str]:
    """Write a folder ``net``; return whether it is one graph with node classes, and a description of the change."""
    chance = rng
    nodes, arcs = 12, 30
    whole = rng.random() < 0.5
    count, width = (1, 64) if whole else (3, 3)
    tables: dict[str, list[list[str]]] = {
        "raw/num-node-list": [[str(nodes)]] * count,
        "raw/num-edge-list": [[str(arcs)]] * count,
        "raw/edge": [[str(chance.randrange(nodes)), str(chance.randrange(nodes))] for _ in range(arcs * count)],
        "raw/node-feat": [[str(chance.randrange(3)) for _ in range(width)] for _ in range(nodes * count)],
        **{
            f"split/random/{part}": [[str(n)] for n in range(count if not whole else 4)]
            for part in ("train", "valid", "test")
        },
    }
    tables["raw/node-label" if whole else "raw/graph-label"] = [[str(n % 3)] for n in range(nodes if whole else count)]
    if whole:
        for place, part in enumerate(("train", "valid", "test")):
            tables[f"split/random/{part}"] = [[str(4 * place + n)] for n in range(4)]
    else:
        tables["mapping/mol"] = [
            ["smiles", "id"],
            *([rng.choice(("CCO", "\x1b[31m", "x" * 2500)), "1"] for _ in range(3)),
        ]
    done = []
    for name, rows in tables.items():
        if rng.random() < 0.12:
            rows, how = spoiled(rows, rng)
            done.append(f"{name}: {how}")
        content = "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass") + b"\n"
        if rng.random() < 0.02:
            content, how = b"0\n" * rng.choice((10**6, 10**8)), "a bomb"
            done.append(f"{name}: {how}")
        packed = rng.random() < 0.8
        content = gzip.compress(content, 1) if packed else content
        if rng.random() < 0.05:
            content, how = mutated(content, rng)
            done.append(f"{name}: {how}")
        path = folder / "net" / f"{name}.csv{'.gz' if packed else ''}"
        path.parent.mkdir(parents=True, exist_ok=True)
        if rng.random() < 0.03:
            done.append(not_a_file_reason(rng, path))
        elif rng.random() > 0.03:
            path.write_bytes(content)
    return whole, ", ".join(done)
