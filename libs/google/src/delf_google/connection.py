"""The base of every connection to a Google service."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from delf.errors import ConnectionFileNotFoundError
from delf.machine.folders import expand_home
from delf.protocols.connection import Allowed, ProposedCall, Verdict
from delf.tools.action import actions_of
from delf.tools.connection import Connection
from delf.tools.permissions import is_allowed, needs_confirmation
from delf_google.credentials import Tokens
from delf_google.errors import GET_CREDENTIALS, LOGIN
from delf_google.settings import GoogleSettings
from delf_google.transport import Transport

SCOPE_URL_PREFIX = "https://www.googleapis.com/auth/"


class GoogleConnection(Connection[GoogleSettings]):
    """Base class of the connections to Google services.

    Args:
        name: The variable's name in scripts; the type's name when omitted.
        allow: The available actions.
        confirm: The actions that need approval; all except reading ones when omitted.
        metadata: Any data of the embedding program; delf does not use it.
        settings: The fields of :class:`delf_google.settings.GoogleSettings`.

    Raises:
        ConnectionConfigurationError: If a setting is invalid.
        ConnectionFileNotFoundError: If a file with credentials does not exist.
    """

    root: ClassVar[str]
    """The base URL of the service."""
    scopes: ClassVar[Mapping[str, str]]
    """A mapping from a permission name to the narrowest OAuth scopes that suffice for the actions
    with this permission.

    Scopes are separated by spaces, without the prefix :data:`SCOPE_URL_PREFIX`.
    """
    scope_inclusions: ClassVar[Mapping[str, frozenset[str]]] = {}
    """A mapping from an OAuth scope to the narrower scopes that it includes."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        google_settings: GoogleSettings = self.settings
        for path in (google_settings.oauth_credentials, google_settings.service_account):
            if path is not None and not expand_home(path).is_file():
                raise ConnectionFileNotFoundError(
                    f"{self.name}: there is no file of credentials {path!r}", hint=GET_CREDENTIALS
                )
        scopes = self.needed_scopes()
        tokens = Tokens(self.name, google_settings, scopes, self.keep_secret, self._login_command())
        self.transport = Transport(self.name, self.root, google_settings, tokens, scopes)

    def _login_command(self) -> str:
        """Return the shell command that logs in for this connection."""
        if self.settings.source("oauth_credentials") == "project":
            return LOGIN  # logs in for all connections of the project
        # ``delf google login`` knows no connections made in Python, so -c names the type.
        path = self.settings.oauth_credentials
        account = self.settings.account
        command = [*LOGIN.split(), "-c", type(self).__name__.lower()]
        command += ["--credentials", path or "client_secrets.json"]
        if account != "default":
            command += ["--account", account]
        return shlex.join(command)

    def needed_scopes(self) -> tuple[str, ...]:
        """Return the smallest set of OAuth scopes with which all allowed actions work."""
        needed: set[str] = set()
        for item in actions_of(type(self), None, self.name):
            if is_allowed(self.allow, item):
                needed.update(self.scopes[item.permission].split())
        included: set[str] = set()
        for scope in needed:
            included.update(self.scope_inclusions.get(scope, ()))
        return tuple(sorted(SCOPE_URL_PREFIX + scope for scope in needed - included))

    async def check(self, call: ProposedCall) -> Verdict:
        """Allow every call; attach a preview to a call that a person must approve.

        A person must approve calls of the actions in the setting ``confirm``, although the verdict
        is :class:`Allowed`. The preview is shown to this person.
        """
        actions = {item.name: item for item in actions_of(type(self), None, self.name)}
        if not needs_confirmation(self.confirm, actions[call.action]):
            return Allowed()
        verdict = await self.preview(call)
        if verdict is None:  # the arguments already show the whole effect
            return Allowed()
        # The basis is made again just before the call. If it has changed, the approval is void.
        return replace(verdict, basis=verdict.basis or verdict.preview)

    async def preview(self, call: ProposedCall) -> Allowed | None:
        """Preview the effect of a call without changing anything.

        This default returns None. Connections override it for actions with a preview.

        Args:
            call: A call that a person is asked about.

        Returns:
            A verdict with the preview; None if the arguments already show the whole effect. The
            verdict's ``basis`` is the state that the preview was made from, such as a document's
            revision: an approval is void if the state has changed when the call is made.
        """
        return None

    async def aclose(self) -> None:
        """Close all connections. The next call opens new connections."""
        await self.transport.aclose()
