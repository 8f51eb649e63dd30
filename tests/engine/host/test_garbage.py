"""Automatic collections are off inside, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from support import ROOT

from engine import EngineSpec, open_engine
from engine.host.garbage import without_collections


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    enabled = gc.isenabled()
    yield
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_state_is_restored(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with without_collections():
        assert not gc.isenabled()
        with without_collections():
            assert not gc.isenabled()
    assert gc.isenabled() is enabled
    with pytest.raises(ValueError, match="inside"), without_collections():
        raise ValueError("inside")
    assert gc.isenabled() is enabled


def test_threads_that_overlap_leave_collections_on() -> None:
    gc.enable()
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with without_collections():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(60)
    with without_collections():
        leave.set()
        thread.join()
    assert gc.isenabled()


def test_an_opened_engine_leaves_collections_on() -> None:
    gc.enable()
    with open_engine("sdaa", EngineSpec(ROOT / "example/classification/digits/digits_dyn.onnx", 4)):
        assert gc.isenabled()
