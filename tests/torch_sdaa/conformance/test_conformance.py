"""A slice of PyTorch's databases on the device, and failures that the runner must detect; .ci/long runs all entries."""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # the databases import it

import torch_sdaa  # noqa: E402, F401 -- compiled before a test has a cache of its own
from tests.torch_sdaa.conformance.__main__ import chosen, main  # noqa: E402

SEED = 19


@pytest.fixture(autouse=True)
def _as_found() -> Iterator[None]:
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the databases warn of what they themselves call
        yield
    torch.set_num_threads(threads)


def counts(tmp_path: Path, *words: str) -> tuple[int, Any]:
    """Return the exit code of a run, and its counts."""
    file = tmp_path / "counts.json"
    code = main([*words, "--json", str(file)])
    return code, json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "entries", "samples"), [("ops", 16, 2), ("modules", 6, 2), ("optimizers", 12, 3)])
def test_slice_of_a_database_is_right(family: str, entries: int, samples: int, tmp_path: Path) -> None:
    words = [family, "--sample", str(entries), "--samples", str(samples), "--seed", str(SEED)]
    code, record = counts(tmp_path, *words)
    assert code == 0, record[family]["reasons"]
    assert record[family]["right"] + record[family]["absent"] == entries
    assert record[family]["comparisons"]["forward"] >= entries // 2


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("family", "entries", "samples"), [("ops", 60, 4), ("modules", 24, 2), ("optimizers", 60, 3)])
def test_larger_slice_is_right(family: str, entries: int, samples: int, tmp_path: Path) -> None:
    words = [family, "--sample", str(entries), "--samples", str(samples), "--seed", str(SEED + 1)]
    code, record = counts(tmp_path, *words)
    assert code == 0, record[family]["reasons"]


def test_wrong_kernel_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    library = torch.library.Library("aten", "IMPL")
    library.impl("erfinv", lambda x: torch.erfinv(x.cpu()).nextafter(torch.tensor(9.0)).to(x.device), "PrivateUse1")
    try:
        code, record = counts(tmp_path, "ops", "--names", "erfinv")
    finally:
        library._destroy()
    assert code == 1
    assert record["ops"]["wrong"] == 1
    assert "first of the values that differ" in record["ops"]["reasons"]["erfinv"]
    assert "ops: 0 of 1 right" in capsys.readouterr().out
    assert counts(tmp_path, "ops", "--names", "erfinv")[0] == 0


def test_operator_that_the_device_lacks_is_wrong(tmp_path: Path) -> None:
    from torch_sdaa.loading.core import C

    C.deny({"aten::erfinv"})
    try:
        code, record = counts(tmp_path, "ops", "--names", "erfinv")
    finally:
        C.deny(set())
    assert code == 1
    assert "the device has no kernel for it" in record["ops"]["reasons"]["erfinv"]


def test_exceptions_for_correct_entries_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.torch_sdaa.conformance import ops, tally

    def more(family: str) -> Any:
        record = tally.excuses(family)
        return {**record, "skips": {"add": "said to be wrong"}}

    monkeypatch.setattr(ops, "excuses", more)
    code, record = counts(tmp_path, "ops", "--names", "add")
    assert (code, record["ops"]["stale"]) == (1, 1)


def test_exceptions_are_entries_of_the_databases() -> None:
    from tests.torch_sdaa.conformance import modules, ops, optimizers
    from tests.torch_sdaa.conformance.tally import excuses

    for family, module in (("ops", ops), ("modules", modules), ("optimizers", optimizers)):
        record = {name for entries in excuses(family).values() for name in entries}
        assert record <= set(module.names())


def test_shards_are_a_partition(capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*words: str) -> list[str]:
        assert main(["modules", "--list", *words]) == 0
        return capsys.readouterr().out.split()

    parts = [listed("--shard", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(itertools.chain(*parts)) == sorted(listed())
    assert all(parts)


def test_chosen_are_spread_and_repeatable() -> None:
    names = [str(i) for i in range(100)]
    assert chosen(names, 10, 1) == chosen(names, 10, 1) != chosen(names, 10, 2)
    assert [int(name) // 10 for name in chosen(names, 10, 1)] == list(range(10))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "nothing: no such family; use of: ops, modules, optimizers"),
        (["ops", "--shard", "5/4"], "--shard 5/4: must be I/N with 1 <= I <= N, such as 1/4"),
        (["ops", "--shard", "x"], "--shard x: must be I/N with 1 <= I <= N, such as 1/4"),
    ],
)
def test_unusable_arguments(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


def test_unknown_entry_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modules", "--names", "nn.Nothing"]) == 2
    assert "no entry has such a name" in capsys.readouterr().err
