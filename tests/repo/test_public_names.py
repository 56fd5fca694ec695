"""Public names change only together with their snapshot, which a reviewer sees."""

from __future__ import annotations

import re

from delf.hookspecs import PLUGIN_API
from support.outside_names import OUTSIDE, outside_names
from support.public_names import (
    PROGRAMS,
    imported_modules,
    kept,
    program_names,
    public_names,
    required_members,
    source_of,
    unannounced,
)

OUTSIDE_NOW = {*outside_names()}
GAINS = "delf.protocols.memory.MemoryStore: Protocol.forget(fact: str) -> None"
RENAMES = {
    "delf.llm": ["base_url"],
    "delf.settings": ["for_instance"],
    "delf.tools.function": ["handle_error"],
    "delf.tools.stubs": ["stubs_of"],
    "delf_devkit.testing.contracts.connection": ["connection", "calls"],
    "delf_devkit.testing.models": ["writes", "script"],
    "delf_engine.agent": ["on_confirm"],
    "delf_engine.config": ["retry_count", "budget_usd"],
    "delf_engine.handle": ["snapshot", "approvals", "cancel", "get_pending_approvals"],
    "delf_engine.journal.in_process": ["InProcessJournal"],
    "delf_engine.options": ["timeout"],
    "delf_engine.project.project": ["load_project"],
    "delf_engine.response": ["raise_for_status", "cost_usd"],
    "delf_engine.task_options": ["conversation_id"],
    "delf_engine.views.snapshot": ["state"],
    "delf_gmail.connection": ["search"],
    "delf_journal_sql.settings": ["lock_timeout"],
    "delf.plugins.watch": ["DELF_DISABLE_PLUGINS"],
    "delf.types": ["INTERRUPTED", "irreversible"],
    "delf.errors": ["ERR-TOOL-001"],
    "delf.events": ["http_status"],
    "delf.specs": ["delf_embedders", "needs_presence"],
}
"""A name that documentation uses, by its module."""


def test_public_names_and_signatures_match_the_snapshot() -> None:
    """New names join the promise when the file is written, with a release at the latest."""
    api, before = kept()
    now = public_names()
    programs = PROGRAMS.read_text(encoding="utf-8").splitlines()
    outside = OUTSIDE.read_text(encoding="utf-8").splitlines()
    gone = sorted({*before} - {*now} | {*programs} - {*program_names()} | {*outside} - OUTSIDE_NOW)
    assert not gone, "\n".join(
        [
            "names that plugins or programs import are gone, or have another signature; if that is",
            "meant, run `make generated`:",
            *gone,
        ]
    )
    assert unannounced(api, before, now) == [], "raise PLUGIN_API: a protocol asks for more"
    assert api == PLUGIN_API


def test_renamed_names_leave_the_snapshot() -> None:
    texts = {
        module: re.sub(rf"\b({'|'.join(names)})\b", r"\1_", source_of(module))
        for module, names in RENAMES.items()
    }
    before = {*kept()[1], *PROGRAMS.read_text(encoding="utf-8").splitlines()}
    missing = " ".join(before - {*public_names(texts), *program_names(texts)})
    for names in RENAMES.values():
        assert not [name for name in names if not re.search(rf"\b{name}\b", missing)]


def test_snapshot_has_members_of_private_bases() -> None:
    module = "delf.protocols.connection"
    before = set(public_names())
    assert f"{module}._Shown.basis: str | None" in before
    texts = {module: source_of(module).replace("    basis: str | None", "    origin: str | None")}
    assert f"{module}._Shown.basis: str | None" not in public_names(texts)


def test_snapshot_of_public_names_has_commands_settings_and_http_names() -> None:
    """One for each kind of name that files, commands and other programs use."""
    assert {
        "HTTP POST /run",
        "HTTP RunRequest.conversation_id",
        "HTTP TaskStarted.type = TaskStarted",
        "HTTP header X-API-Key",
        "JSON of delf runs list: cost_usd",
        "command delf runs list",
        "error ERR-TOOL-004 ToolException",
        "exit status UNDECIDED = 3",
        "fixture delf_host",
        "group of entry points delf.connections",
        "key of [agent] rerun_count",
        "key of a model base_url",
        "kind of scaffold sandbox",
        "name in scripts rerun",
        "option delf run --wait-approvals",
        "journal sql option url",
        "section of delf.toml plugins",
        "setting of a model reasoning_effort",
        "strategy stream",
        "variable DELF_TRUST",
    } <= {*OUTSIDE.read_text(encoding="utf-8").splitlines()}


def test_snapshots_cover_what_documentation_imports() -> None:
    assert {"delf.llm", "delf.plugins.host", "delf_engine.config"} < imported_modules()


def test_new_required_member_needs_another_plugin_api() -> None:
    _, before = kept()
    assert len(required_members(before)) > 40
    assert unannounced(PLUGIN_API, before, [*before, GAINS]) == [GAINS.partition("(")[0]]
    assert unannounced(PLUGIN_API - 1, before, [*before, GAINS]) == []
    optional = GAINS.replace("MemoryStore", "SupportsForgetting")
    assert unannounced(PLUGIN_API, before, [*before, optional]) == []
    new = GAINS.replace("MemoryStore", "Forgetting")
    assert unannounced(PLUGIN_API, before, [*before, new]) == []
