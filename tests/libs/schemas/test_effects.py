"""The setting ``effects`` and the actions that it covers."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from delf_schemas.effects import DeclaredEffects, Match


def unknown(effects: dict, path, **digests: str) -> list[str]:
    """Return the unknown actions if the selector ``*`` matches some actions, in a new process."""
    matches = {action: Match(["*"], digest) for action, digest in digests.items()}
    return DeclaredEffects(effects, path).apply(matches).unknown


def test_selector_covers_only_the_actions_of_its_first_match(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    reading = {"*": "read"}
    assert unknown(reading, path) == []  # a selector that matches nothing yet covers nothing
    assert unknown(reading, path, a="1") == []
    assert unknown(reading, path, a="1", b="2") == ["b"]
    assert unknown(reading, path, b="1") == []  # the digest identifies the action
    assert unknown(reading, path, a="2") == ["a"]
    assert unknown({"*": "irreversible"}, path, a="2") == []


def test_action_without_digest_needs_acceptance_each_time(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    for _ in range(2):
        declared = DeclaredEffects({"*": "read"}, path)
        matches = {"a": Match(["*"], None), "b": Match(["*"], "1")}
        assert declared.apply(matches).unknown == ["a"]
        declared.accept()
        assert declared.apply(matches).unknown == ["a"]


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


def test_records_written_at_once_are_all_kept(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    names = [f"action_{number}" for number in range(12)]
    effects = dict.fromkeys(names, "read")
    start = threading.Barrier(len(names))

    def record(name: str) -> None:
        start.wait(50)
        DeclaredEffects(effects, path).apply({name: Match([name], "1")})

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(record, names))
    changed = {name: Match([name], "2") for name in names}
    assert DeclaredEffects(effects, path).apply(changed).unknown == names


def test_action_recorded_by_another_process_is_not_recorded_again(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    first, second = DeclaredEffects({"*": "read"}, path), DeclaredEffects({"*": "read"}, path)
    for process in (first, second):
        process.apply({})  # both have read the file before either writes
    assert first.apply({"a": Match(["*"], "1")}).unknown == []
    assert second.apply({"a": Match(["*"], "changed")}).unknown == ["a"]


def test_strictest_effect_counts_and_each_selector_must_cover_the_action(tmp_path) -> None:
    path = tmp_path / "own" / "known.json"
    declared = DeclaredEffects({"a*": "read", "*": "write"}, path)
    declared.apply({"ab": Match(["a*", "*"], "1"), "b": Match(["*"], "2")})
    applied = declared.apply({"ab": Match(["a*", "*"], "1")})
    assert applied.effects == {"ab": "write"}
    assert declared.apply({"ab": Match(["a*", "*"], "2")}).effects == {"ab": "irreversible"}


def damage(path) -> None:
    path.write_text('{"format": 2')


def open_file(path) -> None:
    path.chmod(0o644)


def open_folder(path) -> None:
    path.parent.chmod(0o777)


def open_folder_without_file(path) -> None:
    path.unlink()
    path.parent.chmod(0o777)


PROBLEMS = {
    "empty": lambda path: path.write_text(""),
    "damaged": damage,
    "other value": lambda path: path.write_text("[]"),
    "other format": lambda path: path.write_text('{"format": 1, "covered": {}}'),
    "other fields": lambda path: path.write_text('{"format": 2, "covered": 3}'),
    "open file": open_file,
    "open folder": open_folder,
    "open folder without file": open_folder_without_file,
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_unusable_record_file_makes_all_actions_unknown(tmp_path, problem: str) -> None:
    path = tmp_path / "own" / "known.json"
    effects = {"*": "read"}
    assert unknown(effects, path, a="1") == []
    PROBLEMS[problem](path)
    is_left = path.read_bytes() if path.exists() else None
    matches = {action: Match(["*"], digest) for action, digest in (("a", "1"), ("b", "2"))}
    for _ in range(2):  # nothing becomes known by being seen once
        declared = DeclaredEffects(effects, path)
        for _ in range(2):
            applied = declared.apply(matches)
            assert applied.effects == {"a": "irreversible", "b": "irreversible"}
            assert applied.unknown == ["a", "b"]
            assert path.name in str(applied.record_problem)
        assert (path.read_bytes() if path.exists() else None) == is_left
    declared.accept()
    assert declared.apply(matches).effects == {"a": "read", "b": "read"}
    assert declared.apply(matches).record_problem is None
    if "folder" not in problem:  # nothing is stored in a folder that others can access
        assert unknown(effects, path, a="1", b="2", c="3") == ["c"]


def test_file_that_becomes_unusable_later_is_left_as_it_is(tmp_path, caplog) -> None:
    path = tmp_path / "own" / "known.json"
    assert unknown({"a": "read"}, path) == []
    declared = DeclaredEffects({"a": "read"}, path)
    DeclaredEffects({"b": "read"}, path).apply({"b": Match(["b"], "2")})
    declared.apply({})
    damage(path)
    with caplog.at_level(logging.WARNING):
        declared.apply({"a": Match(["a"], "1")})
    assert "known only to this process" in caplog.text
    found = DeclaredEffects({"b": "read"}, path).apply({"b": Match(["b"], "3")})
    assert found.unknown == ["b"]


def test_accepted_actions_of_an_open_folder_are_known_only_to_the_process(tmp_path, caplog) -> None:
    path = tmp_path / "own" / "known.json"
    path.parent.mkdir(mode=0o700)
    path.parent.chmod(0o777)
    declared = DeclaredEffects({"*": "read"}, path)
    assert declared.apply({"a": Match(["*"], "2")}).unknown == ["a"]
    with caplog.at_level(logging.WARNING):
        declared.accept()
    assert "known only to this process" in caplog.text
    assert declared.apply({"a": Match(["*"], "2")}).unknown == []
    assert unknown({"*": "read"}, path, a="2") == ["a"]
