"""A slice of the corpus of installed packages; ``python -m tests.transplant.corpus`` runs all of it."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("libcst")

from tests.transplant.corpus import PACKAGES, corpus_files, references, run

pytestmark = pytest.mark.torch


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("most", [4, pytest.param(20, marks=pytest.mark.long)])
def test_files_of_every_package_are_parsed_and_reproduced(most: int) -> None:
    found = run(PACKAGES, most=most, again=True)
    for package, counts in found.items():
        assert counts.unparsed + counts.inexact + counts.broken + counts.restless == [], package
        assert counts.share >= 0.95, counts.unseen
        assert counts.kinds["changed"] or counts.references < 50, package


@pytest.mark.slow
def test_the_corpus_is_large_enough() -> None:
    assert sum(1 for _ in corpus_files(("torch", "torchvision", "timm", "transformers"))) >= 200


def test_references_are_names_and_strings() -> None:
    text = "use_cuda = 'NCCL'  # cuda\nx.cuda(f'cuda:{i}', b'')\n"
    assert [token for _, _, token in references(text)][:2] == ["use_cuda", "'NCCL'"]
    assert [text[start:end] for start, end, _ in references(text)][2] == "cuda"
