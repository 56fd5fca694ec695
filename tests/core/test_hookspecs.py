import inspect
import re
import types

import pluggy
import pytest

from delf import hookspecs
from delf.hookspecs import HOOKS
from delf.plugins import loader
from delf.plugins.discovery import Candidate
from delf.specs import Spec

HOOK_NAMES = [name for name in vars(hookspecs) if name.startswith("delf_")]


def test_every_hook_is_listed_with_its_spec():
    assert list(HOOKS) == HOOK_NAMES
    assert len(HOOKS) > 10
    for name, spec in HOOKS.items():
        returned = inspect.signature(getattr(hookspecs, name)).return_annotation
        assert returned == f"Iterable[{spec.__name__}]"


def test_hooks_are_pluggy_hooks():
    assert isinstance(hookspecs.hookimpl, pluggy.HookimplMarker)
    assert isinstance(hookspecs.hookspec, pluggy.HookspecMarker)


def test_hooks_take_no_argument():
    for name in HOOKS:
        assert not inspect.signature(getattr(hookspecs, name)).parameters, name


def test_hook_kinds_are_distinct():
    kinds = [spec.kind for spec in HOOKS.values()]
    assert len(set(kinds)) == len(kinds)
    assert all(issubclass(spec, Spec) for spec in HOOKS.values())


@pytest.mark.parametrize("name", HOOK_NAMES)
def test_hookspec_docstring_example_runs(name):
    doc = inspect.getdoc(getattr(hookspecs, name)) or ""
    found = re.search(r"Example::\n\n((?:    .*\n|\n)+)", doc)
    assert found, f"{name} has no example"
    plugin = types.ModuleType("example")
    source = inspect.cleandoc(found[1])
    exec(
        f"from delf.hookspecs import hookimpl\nfrom delf.specs import *\n{source}", plugin.__dict__
    )
    loaded = loader.load(Candidate(name="example", plugin=plugin), loader.new_manager())
    assert loaded.reason is None
    assert [type(spec) for spec in loaded.specs] == [HOOKS[name]]
    assert "factory" in doc.split("Example::")[1].split("\n\n")[-1], "says what the factory makes"
