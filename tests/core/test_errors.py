import pickle

import pytest

import delf
from delf import errors
from delf.errors import (
    EnvironmentKeyError,
    LLMExecutionError,
    did_you_mean,
)
from delf_chat.summary import ConversationCompressionError
from delf_sql.failures import SQLSchemaError
from support.every_error import CORE as TREE
from support.every_error import EVERY


def test_codes_are_unique():
    codes = [cls.code for cls in EVERY]
    assert len(set(codes)) == len(codes)


def test_every_public_error_can_be_imported_from_delf():
    public = {name for name in delf.__all__ if name in TREE}
    assert len(public) > 20
    for name in public:
        assert getattr(delf, name) is TREE[name]
    assert delf.SQLSchemaError is SQLSchemaError
    assert delf.ConversationCompressionError is ConversationCompressionError


def test_an_error_carries_message_hint_and_code():
    error = errors.ConfigurationError("timeout is negative", hint="use seconds")
    assert str(error) == error.message == error.for_model() == "timeout is negative"
    assert error.describe() == "ERR-CONFIG-001: timeout is negative (hint: use seconds)"
    assert errors.DelfError("x").describe() == "ERR-DELF-001: x"


def test_a_class_may_have_a_hint_of_its_own():
    assert "delf plugins" in (errors.PluginError("x").hint or "")
    assert errors.PluginError("x", hint="other").hint == "other"
    assert errors.PluginError("x", hint="").describe() == "ERR-PLUGIN-001: x"


def test_errors_with_data():
    assert EnvironmentKeyError("no key", variable="OPENAI_API_KEY").variable == "OPENAI_API_KEY"
    assert "OPENAI_API_KEY" in (EnvironmentKeyError("no key", variable="OPENAI_API_KEY").hint or "")
    assert errors.OptionalDependencyError("no x", package="x").hint == "pip install x"
    assert errors.SandboxLimitError("too much", limit="memory").limit == "memory"
    error = LLMExecutionError("busy", provider="openai", status=429)
    assert (error.provider, error.status) == ("openai", 429)


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(errors.ConfigurationError("x", hint="y")))
    assert (error.message, error.hint) == ("x", "y")


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("timeot", ["timeout", "llm"], "; did you mean 'timeout'?"),
        ("xyzzy", ["timeout", "llm"], ""),
        ("timeout", [], ""),
        ("dockr", iter(["docker"]), "; did you mean 'docker'?"),
    ],
)
def test_did_you_mean(name, known, said):
    assert did_you_mean(name, known) == said
