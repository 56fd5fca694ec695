"""``delf quickstart``: three questions, one cheap call, and a project that runs."""

from __future__ import annotations

import asyncio
import http.client
import json
import shlex
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from delf.errors import ConfigurationError, DelfError, EnvironmentKeyError, LLMExecutionError
from delf.machine.kept_keys import KeptKeys, own_variables
from delf.machine.own_files import write_private
from delf.packages.official import how_to_install, package_of
from delf.providers import Providers
from delf.specs import ConnectionSpec
from delf_cli import errors
from delf_cli.as_json import as_json_option, write_result
from delf_cli.state import State, state_of

SERVERS: Final = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
_DATABASE: Final = "sql"
"""The connection of a database."""
_LOOK_SECONDS: Final = 0.5
_MAX_BYTES: Final = 1_000_000
_CALL_SECONDS: Final = 30.0
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """A model that can be used here.

    Args:
        model: The name.
        base_url: The server's address, if not the provider's default.
        why: The reason that it is offered.
    """

    model: str
    base_url: str | None = None
    why: str


@click.command("quickstart")
@click.option(
    "llm", "--llm", "--model", metavar="MODEL", help="The model, instead of asking for it."
)
@click.option(
    "--base-url", metavar="URL", help="The URL of an OpenAI-compatible server for this model."
)
@click.option("--connect", metavar="WHAT", help='A database\'s URL, a SQLite file, or "none".')
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for delf.toml.",
)
@click.option("--no-call", is_flag=True, help="Do not try the model with one cheap call.")
@as_json_option
@click.pass_context
def quickstart(
    ctx: click.Context,
    llm: str | None,
    base_url: str | None,
    connect: str | None,
    folder: Path | None,
    no_call: bool,
    as_json: bool,
) -> None:
    """Ask for a model, what to connect, and a folder; try the model, and write delf.toml.

    Keys in the environment and local servers (Ollama, LM Studio, llama.cpp) are found.
    """
    from delf.trust.decisions import Trust, items_of
    from delf.trust.folders import CONFIG_FILE

    state = state_of(ctx)
    offered = list(_find_offers(base_url, state.discover().providers))

    def usable(typed: str) -> _Offer:
        """Return the model for a typed name, after checking that it is usable."""
        chosen = _choose_offer(typed, offered, base_url)
        if not no_call:
            click.echo(f"asking {chosen.model} …", err=True)
            try:
                asyncio.run(_call(state, chosen))
            except EnvironmentKeyError as missing:
                _keep_key(missing)
                asyncio.run(_call(state, chosen))
            click.echo(f"{chosen.model} answers", err=True)
        return chosen

    offer = _ask_model(usable, offered) if llm is None else usable(llm)
    if connect is None:
        what = "What to connect? A database's URL or a SQLite file (empty: nothing yet)"
        section = _ask(what, _connection, "", show_default=False)
    else:
        section = _connection(connect)
    file = _ask("Folder of the project", _new_file, ".") if folder is None else _new_file(folder)
    folder = file.parent
    text = _agent(offer) + section
    try:
        write_private(file, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    Trust.here().keep(folder.resolve(), {CONFIG_FILE: items_of(CONFIG_FILE, text)})
    following = list(_next(state, folder, bool(section)))
    data = {"file": str(file), "model": offer.model, "base_url": offer.base_url}
    write_result(f"{file} is written", {**data, "next": following}, as_json=as_json)
    if not as_json:
        click.echo("\n".join(["\nNext:", *(f"  {line}" for line in following)]))


def _next(state: State, folder: Path, has_database: bool) -> Iterator[str]:
    """Yield the commands to type after `delf quickstart`."""
    if folder.resolve() != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    names = {spec.name for spec in state.discover().specs(ConnectionSpec)}
    if has_database and _DATABASE not in names:
        yield how_to_install(package_of("connection", _DATABASE) or _DATABASE)
    task = "Which tables are there, and how many rows has each?"
    yield f'delf run "{task if has_database else "What day is it?"}"'


def _keep_key(missing: EnvironmentKeyError) -> None:
    """Ask for a missing key, and store it as `delf keys` does.

    Raises:
        EnvironmentKeyError: If nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise missing
    click.echo(missing.message, err=True)
    question = f"{missing.variable} (not shown; it is kept for you, outside of the project)"
    place = KeptKeys.here().keep(
        missing.variable, click.prompt(question, hide_input=True, err=True)
    )
    click.echo(f"{missing.variable} is kept in {place}", err=True)


def _ask(what: str, read: Callable[[str], T], default: str | None, **options: Any) -> T:
    """Ask until an answer is valid; return the converted answer."""
    wrong: DelfError | None = None
    while True:
        try:
            return read(click.prompt(what, default=default, err=True, **options))
        except DelfError as error:
            errors.report(error)
            wrong = error
        except click.Abort as abort:
            if wrong is None and isinstance(abort.__context__, EOFError):
                wrong = ConfigurationError(
                    f"nobody answers the question {what.partition(' (')[0]!r}",
                    hint="--llm MODEL, --connect WHAT and --folder DIR give the answers",
                )
            raise wrong or abort from None


def _new_file(folder: str | Path) -> Path:
    """Return the path of a folder's future delf.toml; raise if the file exists.

    Raises:
        ConfigurationError: If the folder has a delf.toml.
    """
    from delf.trust.folders import CONFIG_FILE

    file = Path(folder).expanduser() / CONFIG_FILE
    if file.exists():
        raise ConfigurationError(
            f"{file} already exists",
            hint="delf config set KEY VALUE changes it; or name another folder",
        )
    return file


def _ask_model(usable: Callable[[str], _Offer], offered: Sequence[_Offer]) -> _Offer:
    """List the offered models, and ask for a number or a name; return the chosen model."""
    for number, item in enumerate(offered, 1):
        click.echo(f"  {number}  {item.model}, {item.why}", err=True)
    if not offered:
        click.echo(
            "no key is known and no local server answers; name a model: gpt-4o-mini", err=True
        )
    return _ask("Which model? A number or a name", usable, "1" if offered else None)


def _choose_offer(typed: str, offered: Sequence[_Offer], base_url: str | None) -> _Offer:
    """Return the offered model of a typed number, or the model of a typed name.

    Raises:
        ConfigurationError: For a number that was not offered.
    """
    typed = typed.strip()
    if typed.isdecimal():
        if not 1 <= int(typed) <= len(offered):
            raise ConfigurationError(
                f"there is no model of the number {typed}", hint="a number of the list, or a name"
            )
        return offered[int(typed) - 1]
    offer = _Offer(model=typed, base_url=base_url, why="you named it")
    return next((item for item in offered if item.model in (typed, f"{typed}:latest")), offer)


def _find_offers(base_url: str | None, providers: Providers) -> Iterator[_Offer]:
    """Yield the models of the named server, or of keys and local servers."""
    if base_url is not None:
        for model in _models_at(base_url):
            yield _Offer(model=model, base_url=base_url, why=f"of {base_url}")
        return
    for model, key in providers.usable_suggestions(own_variables()):
        yield _Offer(model=model, why=f"as {key} is set")
    urls = {server: f"http://127.0.0.1:{port}/v1" for server, port in SERVERS.items()}
    with ThreadPoolExecutor(max(1, len(urls))) as pool:
        names = list(pool.map(_models_at, urls.values()))
    for (server, url), models in zip(urls.items(), names, strict=True):
        for model in models:
            yield _Offer(model=model, base_url=url, why=f"of {server} here")


def _models_at(url: str) -> list[str]:
    """List the chat models of an OpenAI-compatible server, if it responds."""
    try:
        # Use no proxy, because the server is on this machine or its network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{url.rstrip('/')}/models", timeout=_LOOK_SECONDS) as answer:
            data: Any = json.loads(answer.read(_MAX_BYTES))
        names = [str(item["id"]) for item in data["data"]]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException):
        return []  # no answer, or not from such a server
    return [name for name in names if "embed" not in name.lower()]


async def _call(state: State, offer: _Offer) -> None:
    """Ask the model for one word.

    Raises:
        DelfError: If the model does not answer, with a hint.
    """
    from delf.llm import LLMConfig
    from delf.messages import ModelRequest, user
    from delf.protocols.context import PluginContext
    from delf_engine.models.pool import ModelPool

    config = LLMConfig(model=offer.model, base_url=offer.base_url)
    pool = ModelPool(state.discover(), PluginContext(environ=own_variables()))
    try:
        await pool.check(config)
        request = ModelRequest(messages=(user("Answer with the word ok."),), settings={})
        async with asyncio.timeout(_CALL_SECONDS):
            await pool.get(config).complete(request)
    except TimeoutError:
        raise LLMExecutionError(
            f"{offer.model} did not answer within {_CALL_SECONDS:.0f} s",
            hint="--no-call writes delf.toml anyway",
        ) from None
    finally:
        await pool.aclose()


def _agent(offer: _Offer) -> str:
    if offer.base_url is None:
        return f"[agent]\nllm = {_quote_toml(offer.model)}\n"
    url = _quote_toml(offer.base_url)
    return f"[agent.llm]\nmodel = {_quote_toml(offer.model)}\nbase_url = {url}\n"


def _connection(what: str) -> str:
    """Return the section of a connection, without its password.

    Raises:
        ConfigurationError: If the target is neither a URL nor a file.
    """
    what = what.strip()
    if not what or what.lower() == "none":
        return ""
    url = what
    if "://" not in what:
        path = Path(what).expanduser().absolute()
        if not path.is_file():
            raise ConfigurationError(
                f"there is no file {what!r}", hint="a URL, as postgresql://host/name, or a file"
            )
        kind = "duckdb" if path.suffix in (".duckdb", ".ddb") else "sqlite"
        url = f"{kind}:///{path}"
    if urlsplit(url).password is not None:
        click.echo(
            "the password is not written: export DATABASE_URL=…, or put it in .env", err=True
        )
        return '\n[connections.database]\ntype = "sql"\nurl = "${DATABASE_URL}"\n'
    return f'\n[connections.database]\ntype = "sql"\nurl = {_quote_toml(url)}\n'


def _quote_toml(text: str) -> str:
    """Quote a text for TOML, in JSON's notation; ``$`` would begin a reference."""
    return json.dumps(text.replace("$", "$$"), ensure_ascii=False)
