"""Subscriptions, apart from a journal."""

import asyncio
from concurrent.futures import Future

import pytest

from delf_journal_sql.watch import Subscription


async def test_timeout_of_reader_does_not_cancel_start():
    async def read(function):
        return function(None)

    def fetch(_connection, position, _limit):
        return [(position + 1, "event")]

    start_position = Future()
    subscription = Subscription(read, start_position, fetch, None)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await anext(subscription)
    start_position.set_result(1)
    assert await anext(subscription) == "event"
