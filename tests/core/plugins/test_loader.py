import types

import pytest

from delf.plugins import loader
from delf.plugins.discovery import Candidate

GOOD = """
    from delf.hookspecs import hookimpl
    from delf.specs import *

    @hookimpl
    def delf_observers():
        return [ObserverSpec(name="good", summary="", factory="a.b:c")]
"""


def load(source, name="made_by_hand"):
    import textwrap

    module = types.ModuleType(name)
    exec(textwrap.dedent(source), module.__dict__)
    return loader.load(Candidate(name="x", plugin=module), loader.new_manager())


def hook(body, head="from delf.hookspecs import hookimpl\nfrom delf.specs import *\n"):
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return f"{head}\n@hookimpl\ndef delf_connections():\n{indented}\n"


def test_specs_of_a_plugins_hooks_are_collected():
    loaded = load(GOOD)
    assert [spec.name for spec in loaded.specs] == ["good"]
    assert loaded.reason is None
    assert loaded.load_ms > 0


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (
            "raise RuntimeError('no luck\\nsecond line')",
            "delf_connections raised RuntimeError: no luck",
        ),
        ("raise SystemExit(3)", "delf_connections raised SystemExit: 3"),
        ("yield 1", "returned a int, not a ConnectionSpec"),
        ("return None", "returned a NoneType, not a ConnectionSpec: yield each spec"),
        ("return 'abc'", "returned a str, not a ConnectionSpec"),
        ("return [ConnectionSpec]", "returned the class ConnectionSpec, not a"),
        (
            "yield MemorySpec(name='m', summary='', factory='a:b')",
            "returned a MemorySpec, not a ConnectionSpec",
        ),
        ("yield ConnectionSpec(name='x', summary='')", "missing 1 required keyword-only argument"),
        ("yield ConnectionSpec(name='x', summary=None, factory='a:b')", "has no summary"),
        ("yield ConnectionSpec(name='', summary='', factory='a:b')", "'' is not a name"),
        ("yield ConnectionSpec(name='a b', summary='', factory='a:b')", "'a b' is not a name"),
        ("yield ConnectionSpec(name=3, summary='', factory='a:b')", "3 is not a name"),
        (
            "yield ConnectionSpec(name='x', summary='', factory='a.b')",
            "not its name as text: 'module:attribute'",
        ),
        (
            "yield ConnectionSpec(name='x', summary='', factory=int)",
            "not its name as text: 'module:attribute'",
        ),
        (
            "for _ in 'ab': yield ConnectionSpec(name='x', summary='', factory='a:b')",
            "it names the connection 'x' twice",
        ),
    ],
)
def test_bad_hook_is_reported_and_not_raised(body, problem):
    loaded = load(hook(body))
    assert loaded.reason is not None
    assert problem in loaded.reason
    assert loaded.specs == ()


def test_async_hook_is_refused_without_a_warning():
    loaded = load(hook("return []").replace("def delf", "async def delf"))
    assert loaded.reason == "delf_connections is async; hooks are plain functions"


def test_hook_with_arguments_is_refused():
    loaded = load(hook("return []").replace("connections()", "connections(config)"))
    assert loaded.reason is not None
    assert "config" in loaded.reason


def test_hook_wrapper_is_refused():
    source = hook("yield").replace("@hookimpl", "@hookimpl(wrapper=True)")
    assert "is a wrapper" in (load(source).reason or "")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            "SandboxSpec(name='s', summary='', factory='a:b', isolation='strong')",
            "one of: process, ",
        ),
        ("ModelSpec(name='s', summary='', factory='a:b', serves='gpt-*')", "serves='gpt-*'"),
        ("ModelSpec(name='s', summary='', factory='a:b', serves=['gpt-*'])", "not a tuple"),
        ("ModelSpec(name='s', summary='', factory='a:b', serves=(None,))", "not a tuple of texts"),
        ("ModelSpec(name='s', summary='', factory='a:b', fallback='no')", "not True or False"),
        ("ModelSpec(name='s', summary='', factory='a:b', project_files=5)", "not a text or None"),
        ("ModelSpec(name='s', summary='', factory='a:b', providers=None)", "not a tuple of Provid"),
        ("ModelSpec(name='s', summary='', factory='a:b', providers=('x',))", "not a tuple of Prov"),
        (
            "StrategySpec(name='s', summary='', factory='a:b', settings={'a': 1})",
            "not a tuple of p",
        ),
        (
            "ModelSpec(name='s', summary='', factory='a:b', providers=(Provider(name='p', keys='K'),))",
            "the provider 'p' has keys='K', not a tuple of texts",
        ),
    ],
)
def test_spec_field_of_a_wrong_value_is_reported(spec, problem):
    hooks = {"Sa": "delf_sandbox_backends", "St": "delf_strategies", "Mo": "delf_models"}
    source = hook(f"yield {spec}").replace("delf_connections", hooks[spec[:2]])
    assert problem in (load(source).reason or "")


def test_failing_second_hook_drops_all_specs_of_the_plugin():
    loaded = load(GOOD + "\n    @hookimpl\n    def delf_connections():\n        raise ValueError\n")
    assert loaded.specs == ()


def test_ctrl_c_is_not_swallowed():
    with pytest.raises(KeyboardInterrupt):
        load(hook("raise KeyboardInterrupt"))


def test_unknown_hook_causes_a_warning_only():
    loaded = load(
        GOOD
        + """
    @hookimpl
    def delf_conections():
        return []

    @hookimpl
    def observers():
        return []

    def delf_telepathy():
        return []

    def delf_models():
        return []

    @hookimpl(optionalhook=True)
    def delf_from_the_future():
        return []

    def helper():
        return []
    """
    )
    assert loaded.reason is None
    assert [spec.name for spec in loaded.specs] == ["good"]
    assert list(loaded.warnings) == [
        "delf_conections is not a hook of this delf; did you mean 'delf_connections'?",
        "delf_models is not marked with @hookimpl and is ignored",
        "delf_telepathy is not a hook of this delf",
        "observers is not a hook of this delf; did you mean 'delf_observers'?",
    ]


def test_object_can_be_a_plugin():
    from delf.hookspecs import hookimpl
    from delf.specs import ConnectionSpec

    class Plugin:
        @hookimpl
        def delf_connections(self):
            return [ConnectionSpec(name="mine", summary="", factory="a:b")]

    loaded = loader.load(Candidate(name="x", plugin=Plugin()), loader.new_manager())
    assert [spec.name for spec in loaded.specs] == ["mine"]
    assert loaded.warnings == ()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module_anywhere:x", "No module named"),
        ("json:JSONDecodr", "json has no 'JSONDecodr'; did you mean 'JSONDecoder'?"),
        ("json:decoder.Nope", "json has no 'decoder.Nope'"),
    ],
)
def test_unresolvable_import_target_raises(target, message):
    with pytest.raises(ImportError, match=message):
        loader.import_target(target)


def test_import_target_finds_modules_and_attributes():
    import json

    assert loader.import_target("json") is json
    assert loader.import_target("json:decoder.JSONDecoder") is json.JSONDecoder
