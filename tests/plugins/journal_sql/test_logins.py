"""Sessions of people who are logged in, as any process of a server finds them."""

from __future__ import annotations

import time
from dataclasses import replace

from delf.protocols.sessions import SessionRecord
from delf.protocols.shared_journal import SharedJournal


def session(digest: str, seconds: float = 60, name: str = "ada") -> SessionRecord:
    now = time.time()
    return SessionRecord(digest=digest, name=name, began=now, until=now + seconds)


async def test_session_is_known_in_every_process_until_its_end(journal_url, open_journal):
    one, other = open_journal(journal_url), open_journal(journal_url)
    assert isinstance(one, SharedJournal)
    for digest in ("a", "b"):
        await one.begin_login(session(digest))
    assert [found.digest for found in await other.logins()] == ["a", "b"]
    assert [found.digest for found in await other.logins(["b", "c"])] == ["b"]
    assert await other.logins([]) == []
    await other.end_login("a")
    await other.end_login("a")
    assert [found.digest for found in await one.logins(["a", "b"])] == ["b"]
    assert [found.digest for found in await other.logins(ended=True)] == ["a", "b"]


async def test_expired_session_is_unknown(journal_url, open_journal):
    journal = open_journal(journal_url)
    await journal.begin_login(session("over", seconds=-1))
    assert await journal.logins() == []
    await journal.begin_login(session("new"))
    assert [found.digest for found in await journal.logins()] == ["new"]
    old = replace(session("old", seconds=-1), began=time.time() - 91 * 86_400)
    await journal.begin_login(old)
    await journal.begin_login(session("newer"))
    kept = [found.digest for found in await journal.logins(ended=True)]
    assert kept == ["over", "new", "newer"]
