"""The setting ``effects`` and the actions that it covers."""

from __future__ import annotations

import logging

import pytest

from delf_schemas.effects import DeclaredEffects, Match


def unknown(effects: dict, path, **digests: str) -> list[str]:
    """Return the unknown actions if the selector ``*`` matches some actions, in a new process."""
    matches = {action: Match(["*"], digest) for action, digest in digests.items()}
    return DeclaredEffects(effects, path).apply(matches).unknown


def test_selector_covers_what_it_matched_at_first(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    reading = {"*": "read"}
    assert unknown(reading, path) == []  # a selector that matches nothing yet covers nothing
    assert unknown(reading, path, a="1") == []
    assert unknown(reading, path, a="1", b="2") == ["b"]
    assert unknown(reading, path, b="1") == []  # the digest identifies the action
    assert unknown(reading, path, a="2") == ["a"]
    assert unknown({"*": "irreversible"}, path, a="2") == []


def test_processes_do_not_lose_what_others_recorded(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    effects = {"a": "read", "b": "read"}
    first, second = DeclaredEffects(effects, path), DeclaredEffects(effects, path)
    for process in (first, second):
        process.apply({})  # both have read the file before either writes
    first.apply({"a": Match(["a"], "1")})
    second.apply({"b": Match(["b"], "1")})
    changed = {"a": Match(["a"], "2"), "b": Match(["b"], "2")}
    assert DeclaredEffects(effects, path).apply(changed).unknown == ["a", "b"]


def test_strictest_effect_counts_and_each_selector_must_cover_the_action(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    declared = DeclaredEffects({"a*": "read", "*": "write"}, path)
    declared.apply({"ab": Match(["a*", "*"], "1"), "b": Match(["*"], "2")})
    applied = declared.apply({"ab": Match(["a*", "*"], "1")})
    assert applied.effects == {"ab": "write"}
    assert declared.apply({"ab": Match(["a*", "*"], "2")}).effects == {"ab": "irreversible"}


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 2, "covered": 3}'])
def test_unreadable_file_is_written_anew(tmp_path, content: str) -> None:
    path = tmp_path / "own" / "known.json"
    assert unknown({"*": "read"}, path, a="1") == []
    path.write_text(content)
    assert unknown({"*": "read"}, path, a="2") == []
    assert unknown({"*": "read"}, path, a="1") == ["a"]


def test_file_that_others_can_read_is_not_used(tmp_path, caplog) -> None:
    path = tmp_path / "own" / "known.json"
    assert unknown({"*": "read"}, path, a="1") == []
    path.parent.chmod(0o777)
    declared = DeclaredEffects({"*": "read"}, path)
    with caplog.at_level(logging.WARNING):
        assert declared.apply({"a": Match(["*"], "2")}).unknown == []
    assert "known only to this process" in caplog.text
    assert declared.apply({"a": Match(["*"], "3")}).unknown == ["a"]
