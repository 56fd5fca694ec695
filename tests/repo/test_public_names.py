"""What plugins are written against does not change without being told."""

from __future__ import annotations

from delf.hookspecs import PLUGIN_API
from support.public_names import kept, public_names, required_members, unannounced

GAINS = "delf.protocols.memory.MemoryStore: Protocol.forget(fact: str) -> None"


def test_public_names_and_signatures_match_the_snapshot() -> None:
    """New names join the promise when the file is written, with a release at the latest."""
    api, before = kept()
    now = public_names()
    gone = sorted({*before} - {*now})
    assert not gone, "\n".join(
        [
            "names that plugins import are gone, or have another signature; if that is meant,",
            "cd tests && ../.venv/bin/python -m support.public_names",
            *gone,
        ]
    )
    assert unannounced(api, before, now) == [], "raise PLUGIN_API: a protocol asks for more"
    assert api == PLUGIN_API


def test_new_required_member_needs_another_plugin_api() -> None:
    _, before = kept()
    assert len(required_members(before)) > 40
    assert unannounced(PLUGIN_API, before, [*before, GAINS]) == [GAINS.partition("(")[0]]
    assert unannounced(PLUGIN_API - 1, before, [*before, GAINS]) == []
    optional = GAINS.replace("MemoryStore", "SupportsForgetting")
    assert unannounced(PLUGIN_API, before, [*before, optional]) == []
    new = GAINS.replace("MemoryStore", "Forgetting")
    assert unannounced(PLUGIN_API, before, [*before, new]) == []
