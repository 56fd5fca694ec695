import copy
import importlib
import inspect
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

import delf
from delf import errors
from delf.errors import (
    DelfError,
    EnvironmentKeyError,
    LLMExecutionError,
    OptionalDependencyError,
    did_you_mean,
    without_passwords,
)
from delf_chat.summary import ConversationCompressionError
from delf_google.errors import GoogleError
from delf_openapi.failures import APIError
from delf_sql.failures import SQLSchemaError
from support.every_error import CORE as TREE
from support.every_error import EVERY
from support.workspace import modules


def test_codes_are_unique():
    codes = [cls.code for cls in EVERY]
    assert len(set(codes)) == len(codes)


def test_public_errors_can_be_imported_from_delf():
    public = {name for name in delf.__all__ if name in TREE}
    assert len(public) > 20
    for name in public:
        assert getattr(delf, name) is TREE[name]
    assert delf.SQLSchemaError is SQLSchemaError
    assert delf.ConversationCompressionError is ConversationCompressionError


def test_error_carries_message_hint_and_code():
    error = errors.ConfigurationError("timeout is negative", hint="use seconds")
    assert str(error) == error.message == error.for_model() == "timeout is negative"
    assert error.describe() == "ERR-CONFIG-001: timeout is negative (hint: use seconds)"
    assert errors.DelfError("x").describe() == "ERR-DELF-001: x"


def test_error_class_may_define_a_default_hint():
    assert "delf plugins" in (errors.PluginError("x").hint or "")
    assert errors.PluginError("x", hint="other").hint == "other"
    assert errors.PluginError("x", hint="").describe() == "ERR-PLUGIN-001: x"


def test_errors_carry_their_data_as_attributes():
    assert EnvironmentKeyError("no key", variable="OPENAI_API_KEY").variable == "OPENAI_API_KEY"
    assert "OPENAI_API_KEY" in (EnvironmentKeyError("no key", variable="OPENAI_API_KEY").hint or "")
    assert errors.OptionalDependencyError("no x", package="x").hint == "pip install x"
    assert errors.SandboxLimitError("too much", limit="memory").limit == "memory"
    error = LLMExecutionError("busy", provider="openai", status=429)
    assert (error.provider, error.status) == ("openai", 429)


def all_errors():
    """Return every error class in the repository, also those that no page lists."""
    for path in modules():
        source = path.read_text(encoding="utf-8")
        if path.name != "__init__.py" and re.search(r"(?m)^class \w+\(.*(Error|TaskLeft)", source):
            parts = path.with_suffix("").parts
            if "guest" not in parts:  # its modules belong into a sandbox
                importlib.import_module(".".join(parts[parts.index("src") + 1 :]))
    found, left = [], [DelfError]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return sorted({c for c in found if c.__module__.startswith("delf")}, key=lambda c: c.__name__)


def an_error(cls):
    """Make an error of a class with all arguments of its constructor."""
    samples = {"folder": Path("/x"), "files": ("a", "b"), "headers": {"a": "b"}, "changed": True}
    given = {
        name: samples.get(name, name)
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    }
    kinds = inspect.signature(cls).parameters
    ahead = [given.pop(n) for n in list(given) if kinds[n].kind is kinds[n].POSITIONAL_OR_KEYWORD]
    return cls(*ahead, **given)


def test_errors_survive_pickling_and_copying():
    classes = all_errors()
    assert {OptionalDependencyError, SQLSchemaError, APIError, GoogleError} < set(classes)
    for cls in classes:
        error = an_error(cls)
        error.seen_later = 7
        again = [pickle.loads(pickle.dumps(error, protocol)) for protocol in range(6)]
        for other in [*again, copy.copy(error), copy.deepcopy(error)]:
            assert type(other) is cls
            assert (str(other), other.args) == (str(error), error.args), cls
            assert vars(other) == vars(error), cls
            assert other.describe() == error.describe()


def test_process_pool_raises_the_error_of_its_child():
    pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork"))
    with pool, pytest.raises(OptionalDependencyError) as info:
        pool.submit(raise_one).result(30)
    assert (info.value.package, info.value.hint) == ("delf-x", "pip install delf-x")


def raise_one():
    raise OptionalDependencyError("no x", package="delf-x")


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        ("timeot", ["timeout", "llm"], "; did you mean 'timeout'?"),
        ("xyzzy", ["timeout", "llm"], ""),
        ("timeout", [], ""),
        ("dockr", iter(["docker"]), "; did you mean 'docker'?"),
    ],
)
def test_did_you_mean_suggests_the_closest_name(name, known, text):
    assert did_you_mean(name, known) == text


@pytest.mark.timeout(10)
@pytest.mark.parametrize("piece", ["http://h:80/x,", "://", '"http://u:AbC","'])
def test_passwords_in_a_long_list_of_urls_are_found_in_linear_time(piece: str) -> None:
    urls = piece * 60_000
    assert without_passwords(urls) == urls
    assert without_passwords(f"http://u:pw@h/ {urls}") == f"http://u:***@h/ {urls}"
