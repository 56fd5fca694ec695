"""``PluginContext``: the agent's settings and services for the factories of its plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import NoReturn

from delf.errors import PluginError
from delf.machine.folders import user_folder
from delf.protocols.embedder import Embedder
from delf.protocols.shared_journal import SharedJournal
from delf.providers import Providers
from delf.records import dataclass


def _data_dir() -> Path:
    return user_folder("data")


def _no_embedder(name: str | None) -> Embedder:
    raise PluginError(
        f"there is no embedder {name or ''!r}",
        hint="a PluginContext that you make yourself needs the argument embedder=…, a function "
        "that takes a name and returns an embedder",
    )


def _refuse_conversations(url: str | None) -> NoReturn:
    place = "here" if url is None else "here, nor at a url"
    raise PluginError(
        f"nothing keeps conversations {place}",
        hint="PluginContext(conversations=…) takes a function of a journal's file or URL",
    )


@dataclass(frozen=True, kw_only=True)
class PluginContext:
    """The context of every factory, and of connections.

    A factory asks for the context by a parameter named ``context``, a connection by a method
    :meth:`~delf.protocols.connection.SupportsPluginContext.use_context`.

    Args:
        data_dir: The folder for persistent data, by default the user's data folder; it may not
            exist yet.
        namespace: The namespace of memories to use.
        environ: The environment variables, some of which hold API keys. Variables of the process
            override variables of ``.env``.
        providers: API keys given in code, by provider name.
        api_key_for: API keys given in code, by the address to which each may be sent, such as
            ``gateway.example:8080``.
        installed_providers: The model providers that installed plugins declare, as in
            :attr:`delf.plugins.host.PluginHost.providers`.
        embedder: Takes the name of an embedder, and returns this embedder, which all callers share.
            With None, returns the agent's own embedder. Raises ``PluginError`` if no plugin
            provides the embedder.
        conversations: Takes a file or URL, and opens the journal there for conversations. With
            None, opens the agent's own journal. The caller closes the journal. Raises
            ``PluginError`` if no installed plugin has a journal for conversations.
    """

    data_dir: Path = field(default_factory=_data_dir)
    namespace: str = "default"
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    providers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    api_key_for: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    installed_providers: Providers = field(default_factory=Providers, repr=False)
    embedder: Callable[[str | None], Embedder] = _no_embedder
    conversations: Callable[[str | None], SharedJournal] = _refuse_conversations
