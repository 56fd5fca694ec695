import json
import sys
import threading
from typing import Protocol

import pytest

from delf.errors import DelfError, OptionalDependencyError, PluginError
from delf.hookspecs import HOOKS
from delf.llm import LLMConfig
from delf.plugins import discovery
from delf.plugins.host import PluginHost
from delf.protocols.queues import TASK_QUEUE
from delf.protocols.services import Service
from delf.specs import (
    ConnectionSpec,
    JournalSpec,
    PrefilterSpec,
    Provider,
    SandboxSpec,
    StrategySpec,
)

MODEL = """
    from delf.hookspecs import hookimpl
    from delf.specs import ModelSpec, Provider

    @hookimpl
    def delf_models():
        yield ModelSpec(name="{name}", summary="", factory="{module}_vendor:M", SERVES)
"""


def model(*patterns, providers=(), fallback=False):
    """Return a plugin with a model."""
    return MODEL.replace("SERVES", f"serves={patterns!r}, {providers=!r}, {fallback=!r}")


WIRE = Provider(name="wire", models=("gpt-*",), addresses=("WIRE_URL",), compatible=True)
"""A provider whose protocol others speak."""
DEEP = Provider(name="deep", aliases=("deeper",), keys=("DEEP_LOGIN",), suggested="deep-1")
OWN = Provider(name="own", own_protocol=True)


def names(host, kind=ConnectionSpec):
    return [spec.name for spec in host.specs(kind)]


# What is there


def test_core_alone_has_no_plugins_and_suggests_a_package(site):
    host = site.host()
    assert host.names == ()
    with pytest.raises(PluginError, match="no journal 'sql' is installed") as caught:
        host.spec(JournalSpec, "sql")
    assert "journal-sql" in (caught.value.hint or "")


def test_plugin_is_imported_only_when_its_specs_are_needed(site):
    module = site.add("delf-plugin-tickets")
    host = site.host()
    assert host.names == ("tickets",)
    assert module not in sys.modules
    assert names(host) == ["tickets"]
    assert module in sys.modules


def test_plugins_are_sorted_whatever_the_discovery_order(site):
    for name in ("zebra", "apple", "mango"):
        site.add(name)
    host = site.host()
    turned = PluginHost(tuple(reversed(discovery.discover())))
    assert names(host) == names(turned) == ["apple", "mango", "zebra"]


def test_host_accepts_plugins_given_in_code():
    import types

    from delf.hookspecs import hookimpl

    module = types.ModuleType("made_in_code")

    @hookimpl
    def delf_connections():
        return [ConnectionSpec(name="mine", summary="", factory="json:JSONDecoder")]

    module.delf_connections = delf_connections
    host = PluginHost.discover(no_plugins=True, environ={}, extra=[("mine", module)])
    assert host.spec(ConnectionSpec, "mine").name == "mine"
    assert host.origin(host.spec(ConnectionSpec, "mine")) == "plugin 'mine' given in code"
    assert host.plugin_of(host.spec(ConnectionSpec, "mine")) == "mine"
    stranger = ConnectionSpec(name="mine", summary="", factory="other:thing")
    assert host.plugin_of(stranger) is None


def test_missing_package_is_named(site):
    shown = "tasks that are left to runners: the package delf-plugin-runner-dbos is not installed"
    with pytest.raises(OptionalDependencyError, match=shown) as caught:
        site.host().service(TASK_QUEUE)
    assert caught.value.package == "delf-plugin-runner-dbos"


class Greets(Protocol):
    def greet(self, name: str) -> str: ...


@pytest.mark.parametrize("name", ["greeter", "plain"])
def test_service_is_looked_up_by_its_type(site, name):
    exported = "greeter = made_greeter:greeter\nplain = made_greeter:plain\n"
    site.add(
        "delf-plugin-greeter",
        "class Greeter:\n    def greet(self, name):\n        return 'hello ' + name\n"
        "greeter, plain = Greeter(), object()\n",
        module="made_greeter",
        entry_points=f"[delf]\ngreeter = made_greeter\n[delf.exports]\n{exported}",
    )
    wanted = Service(name, Greets, "greetings")
    if name == "greeter":
        assert site.host().service(wanted).greet("Ada") == "hello Ada"
        return
    with pytest.raises(PluginError, match="the service 'plain' has no greet") as caught:
        site.host().service(wanted)
    assert "Greets" in (caught.value.hint or "")


# One bad plugin


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("raise RuntimeError('broken')", "RuntimeError: broken"),
        ("raise SystemExit(1)", "SystemExit: 1"),
        ("import no_such_vendor_sdk", "ModuleNotFoundError: No module named 'no_such_vendor_sdk'"),
        ("def (:", "SyntaxError: invalid syntax"),
        ("import asyncio\nraise asyncio.CancelledError", "CancelledError"),
    ],
)
def test_broken_plugin_is_recorded_as_failed_and_others_load(site, record, source, reason):
    site.add("aaa-broken", source)
    site.add("delf-plugin-tickets")
    host = site.host()
    assert names(host) == ["tickets"]
    broken = record(host, "aaa-broken")
    assert broken.state == "failed"
    assert broken.reason is not None
    assert broken.reason.startswith(reason)
    assert broken.kinds == {}
    assert record(host, "tickets").state == "loaded"


def test_missing_plugin_module_is_named_in_the_record(site, record):
    site.add("delf-plugin-ghost", entry_points="[delf]\nghost = made_no_such_module:plugin\n")
    assert "made_no_such_module" in (record(site.host(), "ghost").reason or "")


def test_plugin_for_another_api_version_is_not_imported(site, record):
    api = site.add("api", "raise SystemExit", keywords="delf-plugin-api-2")
    site.add("both", keywords="delf-plugin-api-1,delf-plugin-api-2")
    site.add("silent", keywords="delf,plugin-api")
    host = site.host()
    assert record(host, "api").state == "skipped"
    assert record(host, "api").reason == "needs delf with plugin API 2, this has 1"
    assert api not in sys.modules
    assert record(host, "both").state == record(host, "silent").state == "loaded"


# Blocking


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"no_plugins": True}, "disabled by --no-plugins"),
        ({"disabled": ["tickets"]}, "disabled by the caller"),
        ({"disabled": ["delf-plugin-tickets"]}, "disabled by the caller"),
        ({"disabled": ["Delf_Plugin.Tickets"]}, "disabled by the caller"),
        ({"environ": {"DELF_DISABLE_PLUGINS": "x, tickets"}}, "disabled by DELF_DISABLE_PLUGINS"),
        ({"environ": {"DELF_DISABLE_PLUGINS": "all"}}, "disabled by DELF_DISABLE_PLUGINS"),
    ],
)
def test_blocked_plugins_are_not_imported(site, record, options, reason):
    module = site.add("delf-plugin-tickets")
    host = site.host(**options)
    assert names(host) == []
    found = record(host, "tickets")
    assert (found.state, found.reason) == ("disabled", reason)
    assert module not in sys.modules


# Disputes


def test_plugins_with_one_name_are_both_in_conflict(site, record):
    site.add("delf-plugin-tickets")
    site.add("rival", name="tickets", offers="rival", version="3.1")
    host = site.host()
    one = record(host, "tickets", "delf-plugin-tickets")
    two = record(host, "tickets", "rival")
    assert (one.state, one.reason) == ("conflict", "plugin 'tickets' is also in rival 3.1")
    assert (two.state, two.reason) == (
        "conflict",
        "plugin 'tickets' is also in delf-plugin-tickets 1.0",
    )
    assert names(host) == ["rival", "tickets"]


def test_spec_name_given_twice_raises_and_other_names_work(site, record):
    both = """
        from delf.hookspecs import hookimpl
        from delf.specs import ConnectionSpec

        @hookimpl
        def delf_connections():
            for name in ("shared", "{name}"):
                yield ConnectionSpec(name=name, summary="", factory="{module}:x")
    """
    site.add("one", both)
    site.add("two", both, version="2.0")
    host = site.host()
    assert names(host) == ["one", "two"]
    assert host.spec(ConnectionSpec, "two").name == "two"
    with pytest.raises(PluginError) as caught:
        host.spec(ConnectionSpec, "shared")
    assert caught.value.message == "connection 'shared' is given by one 1.0 and two 2.0"
    assert "DELF_DISABLE_PLUGINS=two" in (caught.value.hint or "")
    assert record(host, "one").state == "conflict"
    assert record(host, "two").reason == "connection 'shared' is also in one 1.0"


def test_disabling_one_plugin_ends_the_name_conflict(site, record):
    site.add("delf-plugin-tickets")
    site.add("rival", name="tickets")
    host = site.host(environ={"DELF_DISABLE_PLUGINS": "rival"})
    assert names(host) == ["tickets"]
    assert record(host, "tickets", "delf-plugin-tickets").state == "loaded"


# Names that mean nothing


@pytest.mark.parametrize(
    ("kind", "name", "package"),
    [
        (SandboxSpec, "docker", "delf-plugin-sandbox-docker"),
        (ConnectionSpec, "gmail", "delf-plugin-gmail"),
        (JournalSpec, "sql", "delf-plugin-journal-sql"),
        (StrategySpec, "codegen", "delf-plugin-strategy-codegen"),
    ],
)
def test_known_missing_name_hints_at_its_package(site, kind, name, package):
    with pytest.raises(PluginError, match=f"no {kind.kind} '{name}' is installed") as caught:
        site.host().spec(kind, name)
    assert caught.value.hint == f"delf plugins install {package.removeprefix('delf-plugin-')}"


def test_unknown_name_hints_at_similar_and_available_names(site):
    site.add("delf-plugin-tickets")
    with pytest.raises(PluginError) as caught:
        site.host().spec(ConnectionSpec, "tickts")
    assert caught.value.message == "unknown connection 'tickts'; did you mean 'tickets'?"
    assert caught.value.hint == "installed: tickets"


@pytest.mark.parametrize(
    ("kind", "typed", "value"),
    [(PrefilterSpec, "of", "off"), (SandboxSpec, "autp", "auto"), (JournalSpec, "non", "none")],
)
def test_unknown_name_hints_at_similar_special_value(site, kind, typed, value):
    with pytest.raises(PluginError) as caught:
        site.host().spec(kind, typed)
    assert caught.value.message == f"unknown {kind.kind} {typed!r}; did you mean {value!r}?"
    assert f"(other values: {', '.join(kind.special_values)})" in (caught.value.hint or "")


def test_unknown_name_recommends_no_package(site):
    with pytest.raises(PluginError) as caught:
        site.host().spec(ConnectionSpec, "xyzzy")
    assert "pip" not in caught.value.describe()
    assert caught.value.hint == "no connection is installed"


def test_failed_plugin_is_named_with_its_reason(site):
    site.add("delf-plugin-sandbox-docker", "raise RuntimeError('no socket')")
    site.add("delf-plugin-gmail", keywords="delf-plugin-api-99")
    host = site.host(disabled=["drive"])
    with pytest.raises(PluginError) as caught:
        host.spec(SandboxSpec, "docker")
    assert caught.value.message == (
        "no sandbox 'docker': plugin 'sandbox-docker' (delf-plugin-sandbox-docker 1.0) is failed: "
        "RuntimeError: no socket (made_delf_plugin_sandbox_docker.py, line 1)"
    )
    with pytest.raises(PluginError, match="is skipped: needs delf with plugin API 99"):
        host.spec(ConnectionSpec, "gmail")


FAULTY = """
    from delf.hookspecs import hookimpl

    @hookimpl
    def delf_models():
        return [ModelSpec(name="fake")]
"""


@pytest.mark.parametrize("kind", sorted(HOOKS.values(), key=lambda kind: kind.kind))
@pytest.mark.parametrize(
    ("source", "api", "reason"),
    [
        (FAULTY, 1, "delf_models raised NameError: name 'ModelSpec' is not defined"),
        ("1 / 0", 1, "ZeroDivisionError: division by zero"),
        (FAULTY.replace("_models", "_modles"), 1, "delf_modles is not a hook of this delf"),
        (FAULTY.replace("@hookimpl", ""), 1, "delf_models is not marked with @hookimpl"),
        (FAULTY, 99, "needs delf with plugin API 99"),
    ],
)
def test_hint_for_an_unknown_name_names_faulty_plugins(site, kind, source, api, reason):
    site.add("mine", source, keywords=f"delf-plugin-api-{api}")
    with pytest.raises(PluginError) as caught:
        site.host().spec(kind, "fake")
    assert caught.value.hint.startswith("plugin 'mine' (mine 1.0) ")
    assert reason in caught.value.hint
    assert caught.value.__notes__ == [f"hint: {caught.value.hint}"]


def test_hint_for_an_unknown_name_has_bounds(site):
    for number in range(9):
        site.add(f"p{number}", "1 / 0")
    site.add("blocked", "1 / 0")
    site.add("fine")
    host = PluginHost.discover(["blocked"], environ={}, absent=[("lost", "give the file again")])
    with pytest.raises(PluginError) as caught:
        host.spec(SandboxSpec, "fake")
    first, *others, last = str(caught.value.hint).split("; ")
    assert first == "plugin 'lost' is failed: give the file again"
    assert [line.split("'")[1] for line in others[:2]] == ["p0", "p1"]
    assert others[2:] == ["7 more failed: see delf plugins"]
    assert last == "no sandbox is installed (other values: auto)"


# Models


def test_longest_matching_pattern_serves_a_model(site):
    site.add("general", model("*"))
    site.add("gpt", model("gpt-*", "o?"))
    site.add("mini", model("gpt-*-mini"))
    host = site.host()
    assert host.model_spec("claude-x").name == "general"
    assert host.model_spec("gpt-4o").name == "gpt"
    assert host.model_spec("o3").name == "gpt"
    assert host.model_spec("gpt-4o-mini").name == "mini"


def test_equally_specific_model_patterns_raise(site):
    site.add("one", model("gpt-*"))
    site.add("two", model("*-mini", "gpt-?"))
    host = site.host()
    assert host.model_spec("gpt-4o").name == "one"
    with pytest.raises(PluginError, match=r"model 'gpt-4' is given by one 1\.0 and two 1\.0"):
        host.model_spec("gpt-4")


def test_unserved_model_hints_at_the_package_to_install(site):
    host = site.host()
    with pytest.raises(
        PluginError, match="no installed plugin serves the model 'gpt-4o'"
    ) as caught:
        host.model_spec("gpt-4o")
    assert caught.value.hint == "delf plugins install model-http"
    with pytest.raises(PluginError) as caught:
        host.model_spec("groq/llama-3.3-70b")
    assert caught.value.hint == "delf plugins install model-litellm"
    with pytest.raises(PluginError) as caught:
        host.model_spec("recorded:demo.jsonl")
    assert caught.value.hint == "delf plugins install model-recorded"


def test_model_plugin_is_chosen_by_address_and_provider(site):
    site.add("any", model("any/*", providers=(WIRE, DEEP, OWN), fallback=True))
    site.add("wire", model(providers=(WIRE, Provider(name="second"))))
    host = site.host()
    at = "http://localhost:1/v1"
    for config, expected in {
        LLMConfig("GPT-4o"): "wire",
        LLMConfig("llama3.2"): "any",
        LLMConfig("any/gpt-4o"): "any",
        LLMConfig("deep/x"): "any",
        LLMConfig("llama3.2", base_url=at): "wire",
        LLMConfig("deep/llama", base_url=at): "wire",
        LLMConfig("own/mine", base_url=at): "any",
        LLMConfig("own:mine", base_url=at): "any",
        LLMConfig("own/mine", provider="second"): "wire",
        LLMConfig("whatever", provider="deep"): "any",
        LLMConfig("deep:whatever", base_url=at): "any",
    }.items():
        assert host.model_spec(config).name == expected, config


@pytest.mark.parametrize("at", ["", "http://localhost:1/v1"])
def test_address_variable_applies_to_names_without_provider(site, at):
    site.add("any", model(providers=(DEEP,), fallback=True))
    site.add("wire", model(providers=(WIRE,)))
    host = site.host(environ={"WIRE_URL": at})
    assert host.model_spec("llama3.2").name == ("wire" if at else "any")
    for config in (LLMConfig("groq/llama"), LLMConfig("mine", provider="deep")):
        assert host.model_spec(config).name == "any"


def test_protocol_plugin_serves_model_names_that_no_model_plugin_claims(site):
    site.add("wire", model(providers=(WIRE,)))
    assert site.host().model_spec("llama3.2").name == "wire"


@pytest.mark.parametrize(
    ("name", "at", "expected"),
    [
        ("deep:m-1", None, ("deep/m-1", "auto")),
        ("Deeper:m-1", None, ("deep/m-1", "auto")),
        ("deep:m-1", "http://h/v1", ("m-1", "deep")),
        ("own:m-1", "http://h/v1", ("own/m-1", "auto")),
        ("deep:7b", None, ("deep:7b", "auto")),
        ("deep:latest", "http://h/v1", ("deep:latest", "auto")),
        ("unheard-of:m", None, ("unheard-of:m", "auto")),
        ("deep/m-1", None, ("deep/m-1", "auto")),
    ],
)
def test_provider_before_colon_is_resolved_by_plugin_declaration(site, name, at, expected):
    site.add("mine", model(providers=(DEEP, OWN)))
    config = LLMConfig(name, base_url=at, api_key="k")
    found = site.host().providers.resolve_provider(config)
    assert (found.model, found.provider, found.api_key) == (*expected, "k")


def test_provider_of_a_plugin_is_listed(site):
    site.add("any", model(providers=(WIRE, DEEP), fallback=True))
    site.add("mine", model(providers=(DEEP,)))
    providers = site.host().providers
    assert site.host().model_spec("deep/x").name == "mine", "a fallback comes last"
    assert providers.keys == ("DEEP_LOGIN",)
    assert list(providers.usable_suggestions({"DEEP_LOGIN": "k"})) == [("deep-1", "DEEP_LOGIN")]
    assert providers.spellings("deeper:X") == {"x", "deep/x", "deep:x", "deeper/x", "deeper:x"}
    assert "wire/gpt-4" in providers.spellings("gpt-4")


def test_unknown_provider_error_lists_known_providers(site):
    site.add("mine", model("*", providers=(DEEP,)))
    site.add("any", model(providers=(WIRE, DEEP), fallback=True))
    host = site.host()
    assert host.model_spec(LLMConfig("x", provider="acme")).name == "mine", "it serves any name"
    with pytest.raises(PluginError, match="has the provider 'depe'; did you mean 'deep'") as caught:
        site.host(disabled=["mine"]).model_spec(LLMConfig("x", provider="depe"))
    assert caught.value.hint == "providers: deep, wire"
    with pytest.raises(PluginError) as caught:
        site.host(disabled=["mine"]).model_spec(LLMConfig("x", provider="anthropic"))
    assert caught.value.hint == "delf plugins install model-http"


def test_model_of_a_failed_plugin_raises_with_its_reason(site):
    site.add("delf-plugin-model-litellm", "import litellm_that_is_missing")
    for model in ("gpt-4o", LLMConfig("x", provider="nobody"), "recorded:x"):
        with pytest.raises(PluginError) as caught:
            site.host().model_spec(model)
        reason = "No module named 'litellm_that_is_missing'"
        assert caught.value.describe().count(reason) == 1


# Factories


def test_factory_is_imported_on_the_first_use_only(site):
    module = site.add("delf-plugin-tickets")
    site.module(f"{module}_vendor", "COUNT = []\nclass Thing: pass\n")
    host = site.host()
    spec = host.spec(ConnectionSpec, "tickets")
    assert f"{module}_vendor" not in sys.modules
    assert host.resolve(spec).__name__ == "Thing"
    assert host.resolve(spec) is host.resolve(spec)


def test_spec_with_a_list_among_its_settings_is_resolved(site):
    fields = "name='calm', summary='', factory='json:loads', settings=(('approvals', ['x']),)"
    source = "from delf.hookspecs import hookimpl\nfrom delf.specs import StrategySpec\n@hookimpl\n"
    site.add(
        "delf-plugin-calm", f"{source}def delf_strategies():\n    yield StrategySpec({fields})"
    )
    host = site.host()
    assert host.resolve(host.spec(StrategySpec, "calm")) is json.loads


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import no_such_sdk", "ModuleNotFoundError: No module named 'no_such_sdk'"),
        ("Thingy = 1", "has no 'Thing'; did you mean 'Thingy'?"),
        ("raise SystemExit(2)", "SystemExit: 2"),
    ],
)
def test_factory_that_cannot_be_imported_names_its_plugin(site, source, reason):
    module = site.add("delf-plugin-tickets")
    site.module(f"{module}_vendor", source)
    host = site.host()
    with pytest.raises(PluginError) as caught:
        host.resolve(host.spec(ConnectionSpec, "tickets"))
    assert "plugin 'tickets' (delf-plugin-tickets 1.0): cannot load" in caught.value.message
    assert reason in caught.value.message
    assert caught.value.__cause__ is not None


def test_plugin_error_is_raised_unchanged(site):
    module = site.add("delf-plugin-tickets")
    site.module(
        f"{module}_vendor",
        "from delf.errors import OptionalDependencyError\n"
        "raise OptionalDependencyError('needs the SDK', package='ticket-sdk')\n",
    )
    host = site.host()
    with pytest.raises(DelfError) as caught:
        host.resolve(host.spec(ConnectionSpec, "tickets"))
    assert caught.value.message == "needs the SDK"


def test_host_is_shared_between_threads(site):
    site.add("delf-plugin-tickets", "import time\ntime.sleep(0.05)\n")
    host = site.host()
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(host.records())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert all(item is seen[0] for item in seen)


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("import json\njson.loads('x')", "made_broken.py, line 2"),
        ("from delf import tool\n\n@tool\ndef f(*a): 'Do it.'", "made_broken.py, line 3"),
        ("import missing_module", "made_broken.py, line 1"),
    ],
    ids=["raised by Python", "raised by the core", "missing module"],
)
def test_place_of_a_failure_is_in_the_plugin(site, source, place):
    site.add("broken", source)
    (row,) = site.host().report()
    assert row["reason"].endswith(f"({place})")


# The report


def test_report_is_json_ready(site):
    import json

    site.add("delf-plugin-tickets")
    site.add("broken", "1/0")
    rows = {row["name"]: row for row in json.loads(json.dumps(site.host().report()))}
    assert set(rows) == {"tickets", "broken"}
    assert rows["tickets"]["kinds"] == {"connection": ["tickets"]}
    assert rows["tickets"]["distribution"] == "delf-plugin-tickets"
    assert rows["tickets"]["load_ms"] > 0
    assert rows["broken"]["state"] == "failed"
    assert (
        rows["broken"]["reason"] == "ZeroDivisionError: division by zero (made_broken.py, line 1)"
    )
