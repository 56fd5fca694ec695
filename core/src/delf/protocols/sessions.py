"""Login sessions of people, shared by all processes of a server."""

from __future__ import annotations

from delf.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A login session of a person.

    Args:
        digest: The digest of the session cookie, which itself is not stored.
        name: The name of the person.
        began: The Unix time at which the session began.
        until: The Unix time at which the session expires.
        user: The ``user`` of the person's own tasks; unique even if another person had the same
            name.
        key: The digest of the API key used to log in, if any; revoking the key ends the session.
        way: The login method, ``key`` or ``oidc``.
        client: The client's network address.
        browser: The browser's description of itself.
    """

    digest: str
    name: str
    began: float
    until: float
    user: str = ""
    key: str = ""
    way: str = "key"
    client: str = ""
    browser: str = ""

    @property
    def id(self) -> str:
        """The public id of the session. Nobody can log in with the id."""
        return self.digest[:16]
