"""Each action of delf's own connections says whose words it returns, and where its values go."""

import importlib

import pytest

from delf.specs import ConnectionSpec
from delf.tools.action import actions_of
from support.workspace import PLUGINS

OUTSIDE = {
    "skills.data", "gmail.attachment", "drive.download", "drive.text", "sheets.read",
    "web.scrape", "web.links", "web.tables", "web.feed", "websearch.search",
    "filesystem.read_file", "filesystem.read_document", "filesystem.read_bytes",
    "filesystem.list_files", "filesystem.find", "filesystem.replace", "shell.run", "workers.call",
    "sql.query", "sql.schema", "sql.write", "files.list", "files.read", "files.query", "llm.call", "recall.recall",
}  # fmt: skip
"""Actions of which others may have written all that they return."""
SENT_OUT = {"web.scrape", "web.links", "web.tables", "web.feed", "websearch.search"}


def _declared():
    for plugin in PLUGINS:
        for spec in plugin.specs:
            if not isinstance(spec, ConnectionSpec):
                continue
            place, _, name = spec.factory.partition(":")
            owner = getattr(importlib.import_module(place), name)
            if isinstance(owner, type):
                for action in actions_of(owner):
                    yield f"{spec.name}.{action.name}", action


ACTIONS = dict(_declared())


def test_actions_of_connections_are_found():
    assert len(ACTIONS) > 60


@pytest.mark.parametrize("name", ACTIONS)
def test_changing_actions_declare_their_sinks(name):
    action = ACTIONS[name]
    if action.effect != "read" or action.egress:
        assert action.sinks is not None, "declare sinks=[…]; an empty list for none"


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_declare_whose_words_they_return(name):
    is_outside = ACTIONS[name].trust == "outside"
    assert is_outside == (name in OUTSIDE), "declare trust=…, or add it to those of others"


def test_read_actions_declare_egress_if_they_send_arguments_out():
    assert {name for name, action in ACTIONS.items() if action.egress} == SENT_OUT
