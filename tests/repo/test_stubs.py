"""Stubs and texts of a connection for the model mention no action that is not allowed."""

import json
import re

import pytest

from delf.plugins.host import PluginHost
from delf.specs import ConnectionSpec

HOST = PluginHost.discover(environ={})
SPECS = HOST.specs(ConnectionSpec)
CHANGES = re.compile(
    r"\b(writ(e|es|ing)|chang(e|es|ing)|sends?|sort|stores?|shar(e|es|ing)|delet(e|es)|creat(e|es))\b",
    re.IGNORECASE,
)


def methods_of(spec: ConnectionSpec) -> list[dict[str, object]]:
    return HOST.resolve(spec).inspect(verbose=True)["methods"]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_connection_summary_does_not_promise_changes(spec: ConnectionSpec) -> None:
    cls = HOST.resolve(spec)
    about = cls.summary or (cls.__doc__ or "").strip().partition("\n")[0]
    assert about
    assert not CHANGES.search(about), about


@pytest.mark.parametrize(
    "spec", [s for s in SPECS if s.name != "openapi"], ids=lambda spec: spec.name
)
def test_reading_actions_mention_no_changing_action(spec: ConnectionSpec) -> None:
    methods = methods_of(spec)
    changing = [str(m["name"]) for m in methods if m["effect"] != "read"]
    for method in methods:
        if method["effect"] == "read":
            message = json.dumps({key: value for key, value in method.items() if key != "name"})
            named = [name for name in changing if re.search(rf"\b{name}\b", message)]
            assert not named, f"{method['name']}: {named}"
