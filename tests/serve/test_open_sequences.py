"""Open sequences of a model: order, states, limits, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from serve.errors import ServeError
from serve.protocol.request import InferRequest, InSequence
from serve.sequences import OpenSequences
from utils.tasks.prepared import SequenceState


def run(call: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(call, 30))


async def step(found: OpenSequences, name: str | int, *, start: bool = False, end: bool = False) -> int:
    """Make a request that counts; return the number of those before it."""
    async with found.turn(InSequence(name, start, end)) as turn:
        before = 0 if turn.state is None else int(turn.state.values["count"])
        await asyncio.sleep(0)
        turn.state = SequenceState({"count": before + 1}, [])
    return before


def test_each_request_gets_the_state_that_the_one_before_has_left() -> None:
    async def check() -> None:
        found = OpenSequences(10, 60)
        assert await step(found, 7, start=True) == 0
        assert await step(found, "7", start=True) == 0  # a text is another one
        assert await asyncio.gather(*(step(found, 7) for _ in range(5))) == [1, 2, 3, 4, 5]
        assert await step(found, 7, start=True) == 0  # begins again
        assert await step(found, 7, end=True) == 1
        assert len(found) == 1
        with pytest.raises(ServeError, match="sequence_start") as caught:
            await step(found, 7)
        assert caught.value.kind == "invalid"

    run(check())


def test_one_request_may_be_a_whole_sequence() -> None:
    async def check() -> None:
        found = OpenSequences(1, 60)
        assert await step(found, 1, start=True, end=True) == 0
        assert len(found) == 0

    run(check())


def test_a_request_after_the_last_one_waits_for_it_and_is_refused() -> None:
    async def check() -> None:
        found = OpenSequences(4, 60)
        await step(found, 1, start=True)
        last, after, again = step(found, 1, end=True), step(found, 1), step(found, 1, start=True)
        results = await asyncio.gather(last, after, again, return_exceptions=True)
        assert results[0] == 1
        assert isinstance(results[1], ServeError)
        assert results[2] == 0
        assert await step(found, 1) == 1

    run(check())


def test_a_request_that_fails_leaves_the_state() -> None:
    async def check() -> None:
        found = OpenSequences(2, 60)
        for start in (True, False):
            with pytest.raises(ServeError, match="wrong"):
                async with found.turn(InSequence(3, True)):
                    raise ServeError("invalid", "wrong")
            assert len(found) == (0 if start else 1)
            if start:
                assert await step(found, 3, start=True) == 0
        assert await step(found, 3) == 1

    run(check())


def test_too_many_sequences() -> None:
    async def check() -> None:
        found = OpenSequences(2, 60)
        await step(found, 1, start=True)
        await step(found, 2, start=True)
        with pytest.raises(ServeError, match="--max_sequences") as caught:
            await step(found, 3, start=True)
        assert caught.value.kind == "full"
        await step(found, 2, end=True)
        assert await step(found, 3, start=True) == 0

    run(check())


def test_old_ones_are_closed() -> None:
    async def check() -> None:
        found = OpenSequences(1, 0.001)
        await step(found, 1, start=True)
        await asyncio.sleep(0.01)
        assert await step(found, 2, start=True) == 0
        with pytest.raises(ServeError, match="is not open"):
            await step(found, 1)
        async with found.turn(InSequence(2, True)) as turn:  # one that is computed is not closed
            await asyncio.sleep(0.01)
            assert len(found) == 1
            turn.state = SequenceState({}, [])

    run(check())


@pytest.mark.parametrize("given", [-1, 1 << 64, 1.5, True, [], "x" * 129])
def test_wrong_ids(given: Any) -> None:
    with pytest.raises(ServeError, match="sequence_id"):
        InferRequest("m").take_parameters({"sequence_id": given})


def test_parameters_of_a_sequence() -> None:
    request = InferRequest("m")
    for none in (0, "", None):
        request.take_parameters({"sequence_id": none, "sequence_start": True})
        assert request.sequence is None
    request.take_parameters({"sequence_id": "a", "sequence_end": True})
    assert request.sequence == InSequence("a", False, True)
    with pytest.raises(ServeError, match="sequence_start"):
        request.take_parameters({"sequence_id": 1, "sequence_start": 1})
