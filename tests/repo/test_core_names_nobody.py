"""The core is the contracts: no plugin, vendor, suffix of a file or command stands in it.

``official.json`` and ``exported.pyi`` are made from what plugins say, and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from delf.hookspecs import HOOKS
from delf.plugins.host import PluginHost
from delf.specs import CommandSpec, FormatSpec, ModelSpec
from support.workspace import CORE, PLUGINS

WORDS = {
    "chat": "a conversation",
    "docs": "documentation of a tool",
    "engine": "what works on tasks, whoever brings it",
    "files": "files of a task or a folder",
    "filter": "a condition on what a list shows",
    "http": "the protocol, and its addresses",
    "llm": "the module and the option of models",
    "local": "this machine, and its user",
    "recall": "the step of the loop",
    "recorded": "kept in the journal",
    "search": "a look-up by words",
    "serve": "to be of use to somebody",
    "sheets": "the tables of a workbook",
    "shell": "a program's command line",
    "static": "a method of a class",
    "stream": "a model's answer in pieces",
    "terminal": "where a person types",
    "together": "at one time",
    "web": "the network",
    "worker": "an agent that has a name",
}
"""Names of plugins and specs that are words of English or of the field: what the core means."""

VENDORS = (
    *("chatgpt", "claude", "gpt", "langchain_openai", "llama", "qwen"),
    *("apertus", "gemma", "gpt-oss", "granite", "kimi", "magistral", "openthinker", "sky-t1"),
    *("cogency", "delfhos", "langchain", "pydantic-ai", "pydantic_ai", "smolagents"),
    *("aws", "dropbox", "github", "mariadb", "mysql", "notion", "postgres", "postgresql", "stripe"),
    "kubernetes",
)
"""Names that no spec has, of companies and products that plugins work with."""


def names() -> Iterator[str]:
    """Yield every name that a plugin brings, and those of vendors."""
    host = PluginHost.discover(environ={})
    yield from VENDORS
    yield from (plugin.name for plugin in PLUGINS)
    yield from (plugin.module for plugin in PLUGINS)
    for kind in HOOKS.values():
        if kind is not CommandSpec:
            yield from (spec.name for spec in host.specs(kind))
    for spec in host.specs(FormatSpec):
        yield from (*spec.endings, *spec.writes)
    for spec in host.specs(ModelSpec):
        for provider in spec.providers:
            yield from (*provider.words, *provider.keys, *provider.addresses)
    for spec in host.specs(CommandSpec):
        yield f"delf {spec.name}"
    yield from (".worker", "pricing.json")


FORBIDDEN = sorted({name.lower() for name in names()} - WORDS.keys())


NAMED = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, FORBIDDEN))})(?![\w-])", re.IGNORECASE)


def found_in(text: str) -> Iterator[str]:
    """Yield the forbidden names that stand by themselves in a text, each with its line."""
    for match in NAMED.finditer(text):
        line = text.count("\n", 0, match.start())
        yield f"{line + 1} names {match[0]}"


def test_lists_of_words_and_vendors_are_no_longer_than_needed() -> None:
    core = "\n".join(path.read_text("utf-8") for path in (CORE / "src").rglob("*.py"))
    used = {*re.findall(r"(?<![\w-])[\w-]+", core.lower())}
    assert WORDS.keys() <= used & set(names())


def test_core_names_no_plugin_vendor_suffix_or_command() -> None:
    found = [
        f"{path.relative_to(CORE)}:{each}"
        for path in sorted((CORE / "src").rglob("*.py"))
        for each in found_in(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        'PROVIDERS = ("openai",)',
        'if key == "ANTHROPIC_API_KEY":',
        'hint = "delf doctor says why"',
        'SUFFIX = ".worker"',
        "from delf_sql import SQL",
        "# as Slack has it",
        'MARK = "◁think▷"  # Kimi',
        "# gpt-oss without its marks",
        'ENDINGS = (".xlsx",)',
    ],
)
def test_plugin_names_in_the_core_are_detected(line: str) -> None:
    assert [*found_in(line)]
