from pathlib import Path

import pytest

from delf.errors import ConfigurationError, EnvironmentKeyError
from delf.settings import folder_of
from delf_engine.project.values import Values, substitute

ENV = {"HOST": "db", "EMPTY": "", "SECRET": "pa$$word ${HOST}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("${HOST}", "db"),
        ("pg://${HOST}:5432/${HOST}", "pg://db:5432/db"),
        ("${NOPE:-fallback}", "fallback"),
        ("${NOPE:-}", ""),
        ("${NOPE:-a:-b}", "a:-b"),
        ("${EMPTY}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${HOST:-fallback}", "db"),
        ("$${HOST}", "${HOST}"),
        ("$$$$", "$$"),
        ("costs 5$ or $HOST", "costs 5$ or $HOST"),
        ("${SECRET}", "pa$$word ${HOST}"),
        (["${HOST}", {"a": "${HOST}"}, 3], ["db", {"a": "db"}, 3]),
        (True, True),
    ],
)
def test_substitute_replaces_references(text, result):
    assert substitute(text, ENV, "here") == result


def test_unset_variable_error_names_file_and_key():
    with pytest.raises(EnvironmentKeyError) as caught:
        substitute("secret-${NOPE}", ENV, "/p/delf.toml [connections.shop] url")
    assert caught.value.variable == "NOPE"
    assert caught.value.message == (
        "/p/delf.toml [connections.shop] url: the variable NOPE is not set"
    )
    assert caught.value.hint.startswith("export NOPE=")


@pytest.mark.parametrize("text", ["${", "a ${HOST", "${}", "${a-b}", "${1A}", "${HOST:+x}"])
def test_malformed_reference_error_hides_the_value(text):
    with pytest.raises(ConfigurationError) as caught:
        substitute(f"secret {text}", ENV, "here")
    assert caught.value.message == "here: a reference is not well formed"
    assert "secret" not in caught.value.describe()


def put(values, path, value, origin, **kind):
    values.put(tuple(path.split(".")), value, lambda _: origin, **kind)


def test_later_values_override_key_by_key():
    values = Values()
    put(values, "llm", {"model": "a", "settings": {"seed": 1, "top_p": 0.5}}, "first")
    put(values, "llm", {"settings": {"seed": 2}}, "second")
    put(values, "llm.base_url", "http://x", "third")
    assert values.resolve({}) == {
        "llm": {"model": "a", "settings": {"seed": 2, "top_p": 0.5}, "base_url": "http://x"}
    }
    assert values.origin(("llm", "settings", "seed")) == "second"
    assert values.origin(("llm", "model")) == "first"
    assert values.origin(("llm", "base_url", "deeper")) == "third"
    assert values.origin(("llm",)) == "first"
    assert values.origin(("nope",)) is None


def test_value_and_table_replace_each_other():
    values = Values()
    put(values, "x", {"a": 1, "b": 2}, "first")
    put(values, "x", [1], "second")
    assert values.resolve({}) == {"x": [1]}
    put(values, "x", {"c": 3}, "third")
    assert values.resolve({}) == {"x": {"c": 3}}


def test_empty_table_is_kept():
    values = Values()
    put(values, "x", {}, "first")
    assert values.resolve({}) == {"x": {}}


def test_references_are_substituted_only_in_files():
    values = Values()
    put(values, "a", "${HOST}", "file", folder=Path("/p"))
    put(values, "b", "${HOST}", "flag")
    assert values.resolve(ENV) == {"a": "db", "b": "${HOST}"}
    assert values.resolve({"HOST": "other"}, without={"b"}) == {"a": "other"}


def test_file_values_resolve_paths_beside_the_file():
    values = Values()
    put(values, "a", {"b": ["${HOST}.db", 3], "c": "x"}, "file", folder=Path("/p"))
    put(values, "d", "flag.db", "flag")
    found = values.resolve(ENV)
    assert found == {"a": {"b": ["db.db", 3], "c": "x"}, "d": "flag.db"}
    assert folder_of(found["a"]["b"][0]) == folder_of(found["a"]["c"]) == Path("/p")
    assert folder_of(found["d"]) is None
