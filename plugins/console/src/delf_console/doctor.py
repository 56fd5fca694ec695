"""``delf doctor``: whether a task can run here, and what to do if not."""

from __future__ import annotations

import asyncio
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from delf import __version__
from delf.errors import (
    ConfigurationError,
    DelfError,
    JournalUnavailableError,
    describe_exception,
)
from delf.hookspecs import DISTRIBUTION
from delf.machine.kept_keys import own_variables
from delf.network.proxies import proxy_for
from delf.packages import namesake
from delf.packages.official import how_to_install, packages, recommended_plugin
from delf.specs import EmbedderSpec, ModelSpec, SandboxSpec
from delf.types import isolation_rank
from delf_cli import errors
from delf_cli.as_json import as_json_option
from delf_cli.state import State, state_of
from delf_console.findings import Finding, FindingsRow, Status, write_findings
from delf_console.sources import is_installed, packages_of_clone

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost
    from delf.protocols.sandbox import SandboxBackend
    from delf.protocols.shared_journal import SharedJournal as Shared
    from delf_engine.config import AgentConfig
    from delf_engine.project.project import Project

# The size of a journal up to which all events are checked, which takes about 0.1 seconds.
_MAX_CHECKED_BYTES: Final = 20_000_000
# The area of findings about model servers.
#
# An unreachable server stays a problem even if a task can start.
_SERVER_AREA: Final = "server"
_CONNECT_SECONDS: Final = 5.0


@click.command("doctor")
@as_json_option(FindingsRow)
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check Python, plugins, sandboxes, models and the configuration.

    The exit status is 0 if a task could run and 1 if not.
    """
    state = state_of(ctx)
    is_ready = write_findings(state, _examine(state), as_json=as_json)
    if not as_json:
        click.echo(
            "\na task can run" if is_ready else "\nno task can run as configured: fix each ✗"
        )
    ctx.exit(0 if is_ready else 1)


def _problem(area: str, error: DelfError) -> Finding:
    return Finding(area=area, status="problem", text=error.message, hint=errors.hint_of(error))


def examine_config(state: State) -> Iterator[Finding]:
    """Check the configuration of the current folder, and try to start a task."""
    try:
        project = state.load_project()
        yield from _config_file(project)
        _ = project.agent  # raises for an invalid setting
    except DelfError as error:
        yield _problem("config", error)
        return
    count = len(list(project.agent_values.leaves()))
    yield Finding(area="agent", status="ok", text=f"{count} settings are set")
    host = state.discover(project.environ)
    # If a task can start nevertheless, these findings are only notes.
    findings = [
        *_check_names_and_models(host, project, project.agent),
        *_check_connections(host, project),
        *asyncio.run(_check_embedder(host, project, project.agent)),
    ]
    yield from _check_plugin_options(host, project)
    yield from _add_result_of_task_start(host, project, findings)


def _check_plugin_options(host: PluginHost, project: Project) -> Iterator[Finding]:
    """Check the options that ``delf.toml`` gives installed plugins."""
    from delf.plugins.factories import check_options

    for name in project.plugin_options:
        if name not in host.names:
            continue  # plugin_warnings() reports a missing plugin
        try:
            options = project.plugin_options[name]
            check_options(host, name, options)
        except DelfError as error:
            yield _problem("plugins", error)
        else:
            yield Finding(area="plugins", status="ok", text=f"{name}: {len(options)} set")


def _namesake_hint() -> str:
    """Return the commands that replace another project's package ``delf`` by this one.

    If this delf was installed from a clone, the commands install it from there.
    """
    own_package = packages_of_clone().get(DISTRIBUTION)
    if own_package is None:
        return namesake.REMEDY
    # pip then gets ``--editable=/home/me/delf/core``, for example, instead of "delf-core".
    argument_for_pip = own_package.argument(extras=())
    return namesake.REMEDY.replace(DISTRIBUTION, shlex.quote(argument_for_pip))


def _examine(state: State) -> Iterator[Finding]:
    """Check everything that a task needs, and try to start a task.

    If the configuration cannot be read, only Python, delf, the plugins and the keys are checked.
    """
    version = platform.python_version()
    yield Finding(area="python", status="ok", text=f"{version} at {sys.executable}")
    yield Finding(area="delf", status="ok", text=f"{__version__} in {resources.files('delf')}")
    if is_installed(namesake.NAMESAKE):  # a package of another project with the name "delf"
        yield Finding(area="delf", status="note", text=namesake.WARNING, hint=_namesake_hint())
    try:
        project = state.load_project(ask=False)
        yield from _config_file(project)
        config = project.agent
    except DelfError as error:
        yield _problem("config", error)
        host = state.discover()
        yield from (*_check_plugins(host), *_check_keys(host, own_variables()))
        return
    host = state.discover(project.environ)
    findings = [
        *_check_plugins(host),
        *asyncio.run(_check_sandboxes(host, project, config)),
        *_check_keys(host, project.environ),
        *_check_names_and_models(host, project, config),
        *_check_connections(host, project),
        asyncio.run(_check_journal(host, project)),
        *asyncio.run(_check_embedder(host, project, config)),
    ]
    yield from _add_result_of_task_start(host, project, findings)


def _check_names_and_models(
    host: PluginHost, project: Project, config: AgentConfig
) -> Iterator[Finding]:
    """Find unknown names in the configuration, and models that cannot be used."""
    if config.sandbox == "auto" and not host.specs(SandboxSpec):
        package = packages("sandbox")[recommended_plugin("sandbox")]
        hint = how_to_install(package)
        text = "no sandbox is installed"
        yield Finding(area="sandbox", status="problem", text=text, hint=hint)
    for kind, name in config.plugins():
        try:
            host.spec(kind, name)
        except DelfError as error:
            yield _problem(kind.kind, error)
    yield from asyncio.run(_check_models(host, project, config))


async def _check_models(host: PluginHost, project: Project, config: AgentConfig) -> list[Finding]:
    """Check each model's requirements, such as its key, and connect to the model's server.

    No request is sent to the model.
    """
    from delf.protocols.context import PluginContext
    from delf_engine.models.pool import ModelPool

    context = PluginContext(
        environ=project.environ, providers=config.providers, api_key_for=config.api_key_for
    )
    findings: list[Finding] = []
    pool = ModelPool(host, context)
    try:
        _ = config.main_llm  # raises without any model
        for name in config.models:
            model = config.models[name]
            try:
                await pool.check(model)
            except DelfError as error:
                problem = _problem("model", error)
                if problem not in findings:  # several models may need the same missing key
                    findings.append(problem)
            else:
                address: str | None = getattr(pool.get(model), "address", None)
                # Without an address, _check_reachable() connects to no server.
                findings.append(await _check_reachable(model.model, address or ""))
    except DelfError as error:
        findings.append(_problem("model", error))
    finally:
        await pool.aclose()
    return findings


async def _check_reachable(model: str, address: str) -> Finding:
    """Check that a model's server accepts a connection, without sending a request.

    Nothing is checked if the address is unknown (empty), or if a proxy makes the connection.
    """
    text = f"{model} can be used"
    parts = urlsplit(address)
    if not parts.hostname or proxy_for(address) is not None:
        return Finding(area="model", status="ok", text=text)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host_and_port = f"{parts.hostname}:{port}"
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except UnicodeError:  # the name has an empty or too long part
        return _unreachable(f"{model}: {parts.hostname!r} cannot be the name of a server")
    except (OSError, TimeoutError) as error:
        why = getattr(error, "strerror", None) or "no answer in time"
        return _unreachable(f"{model}: its server {host_and_port} is not reachable ({why})")
    writer.close()
    return Finding(area="model", status="ok", text=f"{text} at {host_and_port}")


def _unreachable(text: str) -> Finding:
    hint = "start the server, or correct its address: --base-url, base_url, OPENAI_BASE_URL"
    return Finding(area=_SERVER_AREA, status="problem", text=text, hint=hint)


def _add_result_of_task_start(
    host: PluginHost, project: Project, findings: Sequence[Finding]
) -> list[Finding]:
    """Try to start a task, and return the findings with the result of the attempt.

    If a task can start, its start has shown that the problems in the findings do not matter: they
    become notes, except a damaged journal and an unreachable server. If no task can start, the
    error is added, unless the findings already have it.
    """
    start, *notices = asyncio.run(_try_task_start(host, project))
    if start.status == "ok":
        return [*map(_without_problem, findings), *notices, start]
    known_problems = {finding.text for finding in findings if finding.status == "problem"}
    return list(findings) if start.text in known_problems else [*findings, start]


def _without_problem(finding: Finding) -> Finding:
    """Turn a problem into a note, because a task could start in spite of the problem.

    Problems of the journal and of the model's server stay problems.
    """
    if finding.status != "problem":
        return finding
    # A start proves nothing here: a task may start without the journal, and does not ask the
    # model's server.
    if finding.area in ("journal", _SERVER_AREA):
        return finding
    return replace(finding, status="note")


async def _try_task_start(host: PluginHost, project: Project) -> list[Finding]:
    """Start and stop an agent as `delf run` does, without asking a model.

    Returns:
        Whether the start worked, followed by the agent's warnings.
    """
    from delf_cli.session import Options, Setup

    try:
        agent = await Setup(project, host, Options(flags={})).start()
        try:
            warnings = await agent.acheck()
            sandbox = agent.status()["sandbox"]
        finally:
            await agent.astop()
    except DelfError as error:
        return [_problem("task", error)]
    text = (
        f"a task starts in the sandbox {sandbox['name']!r}, isolation {sandbox['isolation']}, and "
        "could ask its model"
    )
    notes = [Finding(area="task", status="note", text=warning) for warning in warnings]
    return [Finding(area="task", status="ok", text=text), *notes]


def _config_file(project: Project) -> Iterator[Finding]:
    text = str(project.file) if project.file is not None else "no delf.toml from here upwards"
    yield Finding(area="config", status="ok", text=text)
    for warning in project.warnings:
        yield Finding(area="config", status="note", text=warning)


def _check_plugins(host: PluginHost) -> Iterator[Finding]:
    """Report unusable plugins, and faults that authors of usable plugins should fix."""
    from delf_console.soundness import distribution_warnings, is_third_party

    records = host.records()
    usable = [record.name for record in records if record.usable]
    yield Finding(area="plugins", status="ok", text=f"{len(usable)} loaded: {', '.join(usable)}")
    for record in records:
        if record.state not in ("loaded", "disabled"):
            text = f"{record.name} is {record.state}: {record.reason}"
            yield Finding(area="plugins", status="note", text=text, hint="delf plugins says more")
        elif record.usable:
            problems = list(record.warnings)
            if is_third_party(record):
                problems += distribution_warnings(record)
            if problems:
                text = f"{record.name}: {'; '.join(problems)}"
                hint = f"tell its author: delf plugins check {record.name}"
                yield Finding(area="plugins", status="note", text=text, hint=hint)


async def _check_sandboxes(
    host: PluginHost, project: Project, config: AgentConfig
) -> list[Finding]:
    findings: list[Finding] = []
    for spec in host.specs(SandboxSpec):
        findings += await _check_sandbox(host, spec, project, config)
    return findings


async def _check_sandbox(
    host: PluginHost, spec: SandboxSpec, project: Project, config: AgentConfig
) -> list[Finding]:
    """Check that a sandbox is available, and test that its scripts cannot reach the host."""
    from delf.protocols.context import PluginContext
    from delf_engine.sandboxes.backends import make_sandbox

    context = PluginContext(environ=project.environ)
    backend: SandboxBackend | None = None
    try:
        backend = make_sandbox(host, spec, config.sandbox_config, project.plugin_options, context)
        return await _try_sandbox(spec, backend, config)
    except DelfError as error:
        return [_unusable_sandbox(spec, error.message, errors.hint_of(error))]
    except Exception as error:  # a plugin may raise any error; other sandboxes are still checked
        return [_unusable_sandbox(spec, describe_exception(error))]
    finally:
        if backend is not None:
            await backend.aclose()


def _unusable_sandbox(spec: SandboxSpec, reason: str, hint: str | None = None) -> Finding:
    text = f"{spec.name}, isolation {spec.isolation}: {reason}"
    return Finding(area="sandbox", status="note", text=text, hint=hint)


async def _try_sandbox(
    spec: SandboxSpec, backend: SandboxBackend, config: AgentConfig
) -> list[Finding]:
    """Measure how well a sandbox isolates scripts; report the isolation and each protection."""
    from delf.protocols.sandbox import SupportsMeasures, Unavailable
    from delf_engine.sandboxes.backends import Probed

    state = await backend.available()
    if isinstance(state, Unavailable):
        return [_unusable_sandbox(spec, state.reason, state.hint or None)]
    probed = Probed(spec, backend)
    # Whether each protection is active: first by the sandbox's own account, then by delf's tests.
    protections = dict(await backend.measures()) if isinstance(backend, SupportsMeasures) else {}
    measured = await probed.measure(thorough=True)
    protections |= {
        "tried out: files of the host are out of reach": measured.protects_files,
        "tried out: there is no network": measured.blocks_network,
        "tried out: processes of the host are out of reach": measured.protects_processes,
        "tried out: memory is limited": bool(measured.limits_memory),
        "tried out: processor time is limited": bool(measured.limits_cpu),
        "tried out: the number of processes is limited": bool(measured.limits_process_count),
    }
    isolation = probed.trusted_isolation(measured)
    text = f"{spec.name}, isolation {isolation}: {state.detail or 'works'}"
    if isolation != probed.claimed:
        text += f"; {probed.explain(measured)}"
    if isolation_rank(isolation) < isolation_rank(config.min_isolation):
        text += f"; weaker than min_isolation = {config.min_isolation!r}"
    findings = [Finding(area="sandbox", status="ok", text=text)]
    for protection, is_active in protections.items():
        status: Status = "ok" if is_active else "note"
        answer = "yes" if is_active else "no"
        protection_text = f"{spec.name}: {protection}: {answer}"
        findings.append(Finding(area="sandbox", status=status, text=protection_text))
    return findings


def _check_keys(host: PluginHost, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Report which model keys are set, and whether a model plugin is installed."""
    known = host.providers.keys
    keys = sorted(name for name in known if environ.get(name))
    if keys:
        yield Finding(area="model", status="ok", text=f"keys: {', '.join(keys)}")
    elif known:
        text = f"no key of a model is set: {', '.join(known)}"
        suggested = next((p.name for p in host.providers.all if p.suggested), None)
        hint = None if suggested is None else f"delf keys set {suggested}"
        yield Finding(area="model", status="note", text=text, hint=hint)
    if not host.specs(ModelSpec):
        hint = "delf plugins install model-http"
        yield Finding(area="model", status="problem", text="no model is installed", hint=hint)


def _check_connections(host: PluginHost, project: Project) -> Iterator[Finding]:
    from delf_cli.session import plugin_warnings

    for name, entry in project.connections.items():
        try:
            project.connector(host)(name)
        except DelfError as error:
            yield _problem("tools", error)
        else:
            yield Finding(area="tools", status="ok", text=f"{name} ({entry.type}) is configured")
    for warning in plugin_warnings(host, project):
        yield Finding(area="config", status="note", text=warning)


async def _check_journal(host: PluginHost, project: Project) -> Finding:
    """Check whether the journal can be opened and read."""
    try:
        text = await _read_journal(host, project)
    except DelfError as error:
        finding = _problem("journal", error)
        is_default_unavailable = (
            isinstance(error, JournalUnavailableError)
            and not error.chosen
            and project.journal is None
        )
        # A task starts without the default journal: its events are in memory only.
        return replace(finding, status="note") if is_default_unavailable else finding
    return Finding(area="journal", status="ok", text=text)


async def _read_journal(host: PluginHost, project: Project) -> str:
    """Read the journal, and return a text about what could be read.

    Of a large journal, only the newest task is read, because all events would take minutes.

    Raises:
        DelfError: If the journal cannot be opened or read.
    """
    from delf.protocols.shared_journal import SharedJournal
    from delf_cli.journals import project_journal

    journal = project_journal(project, host)
    try:
        await journal.find(1)
        if isinstance(journal, SharedJournal):
            if await _is_large(journal):
                return "the newest task can be read; delf journal check reads all"
            await journal.check()
        return "can be read"
    finally:
        await journal.aclose()


async def _is_large(journal: Shared) -> bool:
    """Return True if reading all events would be slow; False if the size is unknown."""
    try:
        return (await journal.size()).bytes > _MAX_CHECKED_BYTES
    except ConfigurationError:
        return False


async def _check_embedder(host: PluginHost, project: Project, config: AgentConfig) -> list[Finding]:
    """Check the requirements of the agent's embedder, such as its key.

    Without an embedder, tasks run, and searches compare words only.
    """
    from delf.protocols.context import PluginContext
    from delf.protocols.readiness import SupportsSelfCheck
    from delf_engine.embedders import Embedders

    # An embedder with ``by_name`` is used only if the user names it.
    has_default = any(not spec.by_name for spec in host.specs(EmbedderSpec))
    if config.embedder is None and not has_default:
        return []
    if config.embedder is not None:
        try:
            host.spec(EmbedderSpec, config.embedder)
        except DelfError:
            return []  # _check_names_and_models() reports an unknown name
    context = PluginContext(environ=project.environ)
    embedders = Embedders(host, project.plugin_options, context, config.embedder)
    try:
        embedder = embedders.get()
        if isinstance(embedder, SupportsSelfCheck):
            await embedder.check()
    except DelfError as error:
        text = f"searches compare words only: {error.message}"
        return [Finding(area="embedder", status="note", text=text, hint=errors.hint_of(error))]
    finally:
        await embedders.aclose()
    return [Finding(area="embedder", status="ok", text=f"{embedder.model} can be used")]
