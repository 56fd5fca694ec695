"""``delf quickstart``: three questions, one cheap call, and a project that runs."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import shlex
import sys
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar
from urllib.parse import unquote, urlsplit

import click

from delf.errors import ConfigurationError, DelfError, EnvironmentKeyError, LLMExecutionError
from delf.llm import NO_KEY, LLMConfig
from delf.machine.folders import expand_home
from delf.machine.kept_keys import KeptKeys, own_variables
from delf.machine.own_files import write_private
from delf.network.urls import split_http_url, split_url
from delf.packages.official import how_to_install, package_of
from delf.providers import Providers
from delf.specs import ConnectionSpec
from delf_cli import errors
from delf_cli.as_json import as_json_option, write_result
from delf_cli.state import State, state_of

SERVERS: Final = {"Ollama": 11434, "LM Studio": 1234, "llama.cpp": 8080}
"""The default port of each local model server."""
_DATABASE_TYPE: Final = "sql"
# The variables that delf.toml names in place of a URL with a secret.
_MODEL_VARIABLE: Final = "LLM_BASE_URL"
_DATABASE_VARIABLE: Final = "DATABASE_URL"
_SERVER_SECONDS: Final = 0.5
_MAX_BYTES: Final = 1_000_000
_MODEL_SECONDS: Final = 30.0
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """A model that the user can choose.

    Args:
        model: The name of the model.
        base_url: The server's address; None for the provider's default.
        why: The reason that the model is offered, such as a key that is set.
    """

    model: str
    base_url: str | None = None
    why: str

    @property
    def api_key(self) -> str | None:
        """The setting ``api_key``; None if the provider's own key is used.

        A server with a ``base_url`` gets ``NO_KEY``, so that it never gets the provider's key.
        """
        return None if self.base_url is None else NO_KEY


class _ProjectRow(TypedDict):
    """The JSON of ``delf quickstart``.

    Args:
        file: The file that was written.
        model: The chosen model.
        base_url: The address of the model's server, as written in the file; None for the provider's
            usual address.
        next: The commands to type next.
    """

    file: str
    model: str
    base_url: str | None
    next: list[str]


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
@click.option("--no-call", is_flag=True, help="Try neither the model nor the database.")
@as_json_option(_ProjectRow)
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
    """Ask for a model, a database and a folder; try the first two, and write delf.toml.

    Keys in the environment and local servers (Ollama, LM Studio, llama.cpp) are found.
    """
    state = state_of(ctx)
    offers = list(_find_offers(base_url, state.discover().providers))

    def choose_and_try(typed: str) -> _Offer:
        """Return the model that a person chose by number or name.

        First, call the model once as a trial, unless ``no_call``.
        """
        chosen = _choose_offer(typed, offers, base_url)
        if not no_call:
            click.echo(f"asking {chosen.model} …", err=True)
            try:
                asyncio.run(_try_model(state, chosen))
            except EnvironmentKeyError as missing:
                _ask_and_store_key(missing)
                asyncio.run(_try_model(state, chosen))
            click.echo(f"{chosen.model} answers", err=True)
        return chosen

    def read_and_try(typed: str) -> str:
        """Return the section of ``delf.toml`` for a typed database; empty for no database.

        First, read the tables of the database as a trial, unless ``no_call``.
        """
        url = _database_url(typed)
        if url is None:
            return ""
        if not no_call:
            asyncio.run(_try_database(state, url))
        return _connection_section(url)

    offer = _ask_model(choose_and_try, offers) if llm is None else choose_and_try(llm)
    if connect is None:
        question = "What to connect? A database's URL or a SQLite file (empty: nothing yet)"
        connection_text = _ask(question, read_and_try, "", show_default=False)
    else:
        connection_text = read_and_try(connect)
    file = _ask("Folder of the project", _new_file, ".") if folder is None else _new_file(folder)
    project_folder = file.parent
    base_url_setting = _base_url_setting(offer)
    _write_trusted(file, _agent_section(offer, base_url_setting) + connection_text)
    next_commands = list(_next_commands(state, project_folder, has_database=bool(connection_text)))
    data = _ProjectRow(
        file=str(file), model=offer.model, base_url=base_url_setting, next=next_commands
    )
    write_result(f"{file} is written", data, as_json=as_json)
    if not as_json:
        click.echo("\n".join(["\nNext:", *(f"  {line}" for line in next_commands)]))


def _next_commands(state: State, folder: Path, *, has_database: bool) -> Iterator[str]:
    """Yield the commands that lead from the new ``delf.toml`` to a first task."""
    if folder.resolve() != Path.cwd():
        yield f"cd {shlex.quote(str(folder))}"
    connection_types = {spec.name for spec in state.discover().specs(ConnectionSpec)}
    if has_database and _DATABASE_TYPE not in connection_types:
        yield how_to_install(package_of("connection", _DATABASE_TYPE) or _DATABASE_TYPE)
    task = "What day is it?"
    if has_database:
        task = "Which tables are there, and how many rows has each?"
    yield f'delf run "{task}"'


def _ask_and_store_key(missing: EnvironmentKeyError) -> None:
    """Ask for a missing key, and store the key as `delf keys` does.

    Raises:
        EnvironmentKeyError: If nobody can be asked.
    """
    if not sys.stdin.isatty():
        raise missing
    click.echo(missing.message, err=True)
    question = f"{missing.variable} (not shown; it is kept for you, outside of the project)"
    value = click.prompt(question, hide_input=True, err=True)
    place = KeptKeys.here().keep(missing.variable, value)
    click.echo(f"{missing.variable} is kept in {place}", err=True)


def _ask(question: str, convert: Callable[[str], T], default: str | None, **options: Any) -> T:
    """Ask a question until ``convert`` accepts the answer; return the converted answer.

    Raises:
        ConfigurationError: If nobody answers.
        DelfError: If ``convert`` refused an answer, and no further answer came.
        click.Abort: If the person presses Ctrl-C before any answer.
    """
    refusal: DelfError | None = None
    while True:
        try:
            return convert(click.prompt(question, default=default, err=True, **options))
        except DelfError as error:
            errors.report(error)
            refusal = error
        except click.Abort as abort:
            if refusal is not None:
                raise refusal from None
            # click raises Abort for Ctrl-C, and for the end of the input.
            has_input_ended = isinstance(abort.__context__, EOFError)
            if not has_input_ended:
                raise
            raise ConfigurationError(
                f"nobody answers the question {question.partition(' (')[0]!r}",
                hint="--llm MODEL, --connect WHAT and --folder DIR give the answers",
            ) from None


def _new_file(folder: str | Path) -> Path:
    """Return the path of the delf.toml to create in a folder.

    Raises:
        ConfigurationError: If the folder has a delf.toml.
    """
    from delf.trust.folders import CONFIG_FILE

    file = expand_home(folder) / CONFIG_FILE
    if file.exists():
        raise ConfigurationError(
            f"{file} already exists",
            hint="delf config set KEY VALUE changes it; or name another folder",
        )
    return file


def _write_trusted(file: Path, text: str) -> None:
    """Write a project's ``delf.toml``, and record that the user trusts it."""
    from delf.trust.decisions import Trust, items_of
    from delf.trust.folders import CONFIG_FILE

    try:
        write_private(file, text.encode())
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    # The file has only the user's answers, so the next command need not ask for trust.
    Trust.here().keep(file.parent.resolve(), {CONFIG_FILE: items_of(CONFIG_FILE, text)})


def _ask_model(choose_and_try: Callable[[str], _Offer], offers: Sequence[_Offer]) -> _Offer:
    """List the models, and ask for a number or a name; return the chosen model.

    Args:
        choose_and_try: Converts an answer to a model, after a test call of the model.
        offers: The models to list.
    """
    for number, offer in enumerate(offers, 1):
        click.echo(f"  {number}  {offer.model}, {offer.why}", err=True)
    if not offers:
        click.echo(
            "no key is known and no local server answers; type the name of a model, such as "
            "gpt-4o-mini",
            err=True,
        )
    return _ask("Which model? A number or a name", choose_and_try, "1" if offers else None)


def _choose_offer(typed: str, offers: Sequence[_Offer], base_url: str | None) -> _Offer:
    """Return the model that a typed number or name means; any name is accepted.

    Raises:
        ConfigurationError: If the number is not in the list.
    """
    typed = typed.strip()
    if typed.isdecimal():
        if not 1 <= int(typed) <= len(offers):
            raise ConfigurationError(
                f"there is no model of the number {typed}", hint="a number of the list, or a name"
            )
        return offers[int(typed) - 1]
    for offer in offers:
        if offer.model in (typed, f"{typed}:latest"):  # Ollama adds ":latest"
            return offer
    return _Offer(model=typed, base_url=base_url, why="you named it")


def _find_offers(base_url: str | None, providers: Providers) -> Iterator[_Offer]:
    """Yield the models of the server at ``base_url``.

    Without ``base_url``, yield the models for which a key is set, and those of local servers.
    """
    if base_url is not None:
        for model in _models_at(base_url):
            _login, _, server = urlsplit(base_url).netloc.rpartition("@")  # a login is not shown
            yield _Offer(model=model, base_url=base_url, why=f"of {server}")
        return
    for model, key in providers.usable_suggestions(own_variables()):
        yield _Offer(model=model, why=f"as {key} is set")
    urls = {server: f"http://127.0.0.1:{port}/v1" for server, port in SERVERS.items()}
    with ThreadPoolExecutor() as pool:
        models_by_server = list(pool.map(_models_at, urls.values()))
    for (server, url), models in zip(urls.items(), models_by_server, strict=True):
        for model in models:
            yield _Offer(model=model, base_url=url, why=f"of {server} here")


def _models_at(url: str) -> list[str]:
    """Return the chat models of an OpenAI-compatible server; none if no such server responds."""
    try:
        # Use no proxy, because the server is on this machine or its network.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(_models_request(url), timeout=_SERVER_SECONDS) as response:
            data: Any = json.loads(response.read(_MAX_BYTES))
        names = [str(item["id"]) for item in data["data"]]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException, RecursionError):
        return []  # no response, or the response of another kind of server
    return [name for name in names if "embed" not in name.lower()]


def _models_request(url: str) -> urllib.request.Request:
    """Return the request for a server's models; a login in the URL becomes a header.

    Raises:
        ValueError: If the URL is not a valid HTTP URL.
    """
    parts = split_http_url(url)
    if parts is None:
        raise ValueError("not an HTTP URL")
    login, _, host = parts.netloc.rpartition("@")
    address = parts._replace(netloc=host, path=f"{parts.path.rstrip('/')}/models").geturl()
    request = urllib.request.Request(address)  # noqa: S310 - it is an HTTP URL
    if login:
        encoded = base64.b64encode(unquote(login).encode()).decode()
        request.add_header("Authorization", f"Basic {encoded}")
    return request


async def _try_model(state: State, offer: _Offer) -> None:
    """Ask a model for one word.

    Raises:
        DelfError: If the model does not answer.
    """
    from delf.messages import ModelRequest, user
    from delf.protocols.context import PluginContext
    from delf_engine.models.pool import ModelPool

    config = LLMConfig(model=offer.model, base_url=offer.base_url, api_key=offer.api_key)
    pool = ModelPool(state.discover(), PluginContext(environ=own_variables()))
    try:
        await pool.check(config)
        request = ModelRequest(messages=(user("Answer with the word ok."),), settings={})
        async with asyncio.timeout(_MODEL_SECONDS):
            await pool.get(config).complete(request)
    except TimeoutError:
        raise LLMExecutionError(
            f"{offer.model} did not answer within {_MODEL_SECONDS:.0f} s",
            hint="--no-call writes delf.toml anyway",
        ) from None
    finally:
        await pool.aclose()


def _base_url_setting(offer: _Offer) -> str | None:
    """Return the ``base_url`` of ``delf.toml`` for a model; None for the provider's default."""
    if offer.base_url is None:
        return None
    return _url_setting(offer.base_url, _MODEL_VARIABLE)


def _agent_section(offer: _Offer, base_url_setting: str | None) -> str:
    """Return the TOML section of the agent.

    Args:
        offer: The model.
        base_url_setting: The server's address as ``delf.toml`` has it.
    """
    model = _quote_toml(_as_setting(offer.model))
    if base_url_setting is None:
        return f"[agent]\nllm = {model}\n"
    lines = ["[agent.llm]", f"model = {model}", f"base_url = {_quote_toml(base_url_setting)}"]
    if offer.api_key:
        lines.append(f"api_key = {_quote_toml(_as_setting(offer.api_key))}")
    return "\n".join([*lines, ""])


def _database_url(typed: str) -> str | None:
    """Return the URL of a database; None for no database.

    Args:
        typed: A URL or the path of a file; empty or ``none`` for no database.

    Raises:
        ConfigurationError: If the text is neither a URL nor a file.
    """
    typed = typed.strip()
    if not typed or typed.lower() == "none":
        return None
    if "://" in typed:
        return typed
    path = expand_home(typed).absolute()
    if not path.is_file():
        raise ConfigurationError(
            f"there is no file {typed!r}", hint="a URL, as postgresql://host/name, or a file"
        )
    kind = "duckdb" if path.suffix in (".duckdb", ".ddb") else "sqlite"
    return f"{kind}:///{path}"


async def _try_database(state: State, url: str) -> None:
    """Read the tables of a database, if the plugin for databases is installed.

    Raises:
        DelfError: If the database cannot be used.
    """
    host = state.discover()
    if _DATABASE_TYPE not in {spec.name for spec in host.specs(ConnectionSpec)}:
        return
    database: Any = host.resolve(host.spec(ConnectionSpec, _DATABASE_TYPE))
    connection = database(url=url, name="database")
    try:
        await connection.context("")  # reads the tables, as for a prompt
    finally:
        await connection.aclose()


def _connection_section(url: str) -> str:
    """Return the TOML section of a connection to a database."""
    setting = _quote_toml(_url_setting(url, _DATABASE_VARIABLE))
    return f'\n[connections.database]\ntype = "sql"\nurl = {setting}\n'


def _url_setting(url: str, variable: str) -> str:
    """Return a URL as a setting of ``delf.toml``.

    A URL with a secret is not written, because people commit and share the file. The setting names
    a variable instead, and a message asks the person to set the variable.

    Args:
        url: The URL.
        variable: The variable to name.
    """
    from delf_engine.secrets import secrets_in

    parts = split_url(url)
    has_password = parts is not None and parts.password is not None
    if has_password or any(secrets_in(url)):
        click.echo(
            f"the URL holds a password or key, so it is not written: export {variable}=…, or put "
            "it in .env",
            err=True,
        )
        return f"${{{variable}}}"
    return _as_setting(url)


def _as_setting(text: str) -> str:
    """Double each ``$`` of a text, because a single ``$`` begins a variable in a setting."""
    return text.replace("$", "$$")


def _quote_toml(setting: str) -> str:
    """Quote a setting for ``delf.toml``."""
    return json.dumps(setting, ensure_ascii=False)
