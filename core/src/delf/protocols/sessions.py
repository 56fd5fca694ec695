"""Login sessions of people, shared by all processes of a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session.

    Args:
        digest: Of what the browser shows, which is not kept.
        name: The name of the person.
        began: Unix time in seconds.
        until: When it is over.
        holder: The owner of tasks that it stands for; another person of the name has another one.
        key: The digest of the key that was shown, if one was: the session ends with it.
        way: How its person logged in, as ``key`` or ``oidc``.
        client: The address from where.
        browser: The browser's description of itself.
    """

    digest: str
    name: str
    began: float
    until: float
    holder: str = ""
    key: str = ""
    way: str = "key"
    client: str = ""
    browser: str = ""
