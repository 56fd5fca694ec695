import inspect
import re
import types

import pytest

from delf import specs
from delf.hookspecs import HOOKS
from delf.plugins import loader
from delf.plugins.discovery import Candidate
from delf.specs import Spec


def test_every_plugin_spec_class_has_a_hook():
    declared = {spec.__name__ for spec in vars(specs).values() if is_kind(spec)}
    assert {spec.__name__ for spec in HOOKS.values()} == declared
    assert len(HOOKS) > 10
    assert all(re.fullmatch(r"delf_[a-z_]+s", hook) for hook in HOOKS)


def is_kind(spec: object) -> bool:
    return isinstance(spec, type) and Spec in spec.__bases__


def test_hook_with_an_argument_is_refused():
    plugin = types.ModuleType("example")
    exec(
        "from delf.hookspecs import hookimpl\n@hookimpl\ndef delf_models(host): return []",
        plugin.__dict__,
    )
    loaded = loader.load(Candidate(name="example", plugin=plugin), loader.new_manager())
    assert loaded.state == "failed"
    assert "host" in (loaded.reason or "")


def test_hook_kinds_are_distinct():
    kinds = [spec.kind for spec in HOOKS.values()]
    assert len(set(kinds)) == len(kinds)
    assert all(issubclass(spec, Spec) for spec in HOOKS.values())


@pytest.mark.parametrize("name", HOOKS)
def test_spec_docstring_example_runs(name: str):
    doc = inspect.getdoc(HOOKS[name]) or ""
    found = re.search(r"Example::\n\n((?:    .*\n?|\n)+)", doc)
    assert found, f"{name} has no example"
    plugin = types.ModuleType("example")
    source = inspect.cleandoc(found[1])
    exec(
        f"from delf.hookspecs import hookimpl\nfrom delf.specs import *\n{source}", plugin.__dict__
    )
    loaded = loader.load(Candidate(name="example", plugin=plugin), loader.new_manager())
    assert loaded.reason is None
    assert [type(spec) for spec in loaded.specs] == [HOOKS[name]]
