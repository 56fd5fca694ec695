"""``delf keys``: keys kept for this user, such as keys of model providers."""

from __future__ import annotations

import os
import sys
from typing import Final, TypedDict

import click

from delf.errors import ConfigurationError
from delf.machine.kept_keys import KeptKeys
from delf.providers import Provider, Providers
from delf_cli import errors
from delf_cli.as_json import as_json_option
from delf_cli.lazy import BareGroup
from delf_cli.output import json_text
from delf_cli.state import state_of

_SECRET_ENDINGS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


class _KeptRow(TypedDict):
    """The JSON of ``delf keys set``.

    Args:
        kept: The place of each value that was kept, by name.
    """

    kept: dict[str, str]


class _KeysRow(TypedDict):
    """The JSON of ``delf keys list``.

    Args:
        file: The file with the names.
        keys: The place of the value, ``keyring`` or ``file``, by name.
    """

    file: str
    keys: dict[str, str]


class _RemovedRow(TypedDict):
    """The JSON of ``delf keys remove``.

    Args:
        removed: The names that were forgotten.
    """

    removed: list[str]


@click.group("keys", cls=BareGroup, bare_command="list")
def keys() -> None:
    """Keep keys of model providers and of services for yourself, outside of every project.

    \b
    delf keys set openai
    delf keys set DELF_SHOP_TOKEN < token.txt
    delf keys list
    """  # noqa: D301 - click's mark for lines that stay as they are


@keys.command("set")
@click.argument("name")
@click.option("--base-url", metavar="URL", help="Keep the address of the provider's server, too.")
@as_json_option(_KeptRow)
@click.pass_context
def set_command(ctx: click.Context, name: str, base_url: str | None, as_json: bool) -> None:
    """Ask for the key of a provider, such as openai, or for a variable, and keep it.

    The key is kept in the system's keyring if there is one (with the package keyring), else in a
    file that only you can read. Variables of the shell and of a project's .env override the kept
    key. If the standard input is not a terminal, the key is read from it without a question.
    """
    variable, address_variable = _variables(ctx, name)
    if base_url is not None and "://" not in base_url:
        raise ConfigurationError(
            f"--base-url {base_url!r} is not an address", hint="such as http://localhost:8000/v1"
        )
    value = _read_value(variable)
    key_store = KeptKeys.here()
    places = {variable: key_store.keep(variable, value)}
    if base_url is not None:
        places[address_variable] = key_store.keep(address_variable, base_url)
    if as_json:
        click.echo(json_text(_KeptRow(kept=places)))
    for stored_name, place in places.items():
        errors.say("", f"{stored_name} is kept in {place}")
        if os.environ.get(stored_name):
            errors.say(
                "warning", f"{stored_name} is set in this shell, too, and wins: unset {stored_name}"
            )


@keys.command("list")
@as_json_option(_KeysRow)
def list_command(as_json: bool) -> None:
    """List the names of kept keys, and where each is; never a value."""
    key_store = KeptKeys.here()
    places = {
        name: "keyring" if in_ring else "file"
        for name, in_ring in sorted(key_store.names().items())
    }
    if as_json:
        click.echo(json_text(_KeysRow(file=str(key_store.file), keys=places)))
        return
    if not places:
        click.echo("no keys are kept; delf keys set openai keeps one", err=True)
    for name, place in places.items():
        location = "in the system's keyring" if place == "keyring" else f"in {key_store.file}"
        override_note = " (overridden by a variable of the shell)" if os.environ.get(name) else ""
        click.echo(f"{name}  {location}{override_note}")


@keys.command("remove")
@click.argument("name")
@as_json_option(_RemovedRow)
@click.pass_context
def remove(ctx: click.Context, name: str, as_json: bool) -> None:
    """Forget a kept key, with the address that was kept for it."""
    key_store = KeptKeys.here()
    variable, address_variable = _variables(ctx, name)
    if not key_store.remove(variable):
        names = ", ".join(sorted(key_store.names())) or "none"
        raise ConfigurationError(f"{variable} is not kept", hint=f"kept are: {names}")
    removed = [variable]
    if key_store.remove(address_variable):
        removed.append(address_variable)
    if as_json:
        click.echo(json_text(_RemovedRow(removed=removed)))
        return
    verb = "is" if len(removed) == 1 else "are"
    errors.say("", f"{' and '.join(removed)} {verb} forgotten")


def _read_value(variable: str) -> str:
    """Ask for a variable's value at the terminal, or read the standard input.

    At the terminal, the input is hidden if the name of the variable is that of a secret.
    """
    if not sys.stdin.isatty():
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig").strip()
        except UnicodeDecodeError:
            raise ConfigurationError("the value on the standard input is not UTF-8") from None
        if not text:
            raise ConfigurationError(
                f"there is no value for {variable} on the standard input",
                hint=f"at a terminal, delf keys set {variable} asks for it",
            )
        return text
    is_secret = variable.upper().endswith(_SECRET_ENDINGS)
    question = f"{variable} (not shown)" if is_secret else variable
    return click.prompt(question, hide_input=is_secret, err=True)


def _variables(ctx: click.Context, name: str) -> tuple[str, str]:
    """Return the names of the environment variables for a provider's key and server address.

    For an unknown provider NAME, these are ``NAME_API_KEY`` and ``NAME_API_BASE``.

    Args:
        ctx: The command's context.
        name: A provider, such as ``openai``, or a variable, such as ``OPENAI_API_KEY``.
    """
    provider = _find_provider(state_of(ctx).discover().providers, name)
    stem = name.upper().replace("-", "_").removesuffix("_API_KEY")  # such as OPENAI
    key = f"{stem}_API_KEY"
    address = f"{stem}_API_BASE"
    if provider is not None:
        key = next(iter(provider.keys), key)
        address = next(iter(provider.addresses), address)
    if name.isupper():  # the name is already that of a variable
        key = name
    return key, address


def _find_provider(providers: Providers, name: str) -> Provider | None:
    """Return the provider with this name, or with a key variable of this name."""
    # Providers have names with "_" (azure_ai), and a few have aliases with "-" (google-vertex).
    provider = providers.by_name(name.replace("-", "_")) or providers.by_name(name)
    if provider is not None:
        return provider
    return next((each for each in providers.all if name in each.keys), None)
