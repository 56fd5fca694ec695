"""The settings of a connection: the server, its transport, and its permissions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import LocalPath, NamedValues, PluginSettings, SecretStr, SentValues
from delf.types import Effect


class MCPSettings(PluginSettings):
    """The address of a server: a program, a URL, or a name in an ``mcp.json``."""

    command: str | None = Field(default=None, description="The program that is the server.")
    args: tuple[str, ...] = Field(default=(), description="Its arguments.")
    env: NamedValues = Field(
        default_factory=dict,
        description="Variables that it gets beside PATH, HOME and the like.",
    )
    cwd: LocalPath | None = Field(default=None, description="The folder that it runs in.")
    url: str | None = Field(default=None, description="The address of a server (streamable HTTP).")
    headers: SentValues = Field(
        default_factory=dict, description="Headers for every request to the address."
    )
    config: LocalPath | None = Field(
        default=None, description='A file as other programs have it: {"mcpServers": {…}}.'
    )
    server: str | None = Field(
        default=None, description="The server's name there; the connection's when left out."
    )
    effects: dict[str, Effect] = Field(
        default_factory=dict,
        description="What tools do, by name or pattern; what the server says does not count.",
    )
    max_tools: int = Field(
        default=2000, ge=1, le=20_000, description="A server with more tools is an error."
    )
    sample: bool = Field(
        default=True,
        description="Learn the shapes of results that no schema describes, for later tasks.",
    )
    sampling: Literal["ask", "allow", "refuse"] = Field(
        default="ask", description="Whether the server may ask the agent's model."
    )
    roots: tuple[LocalPath, ...] = Field(
        default=(), description="Folders that the server may work in."
    )
    timeout: float = Field(
        default=60.0, gt=0, description="Seconds for a call, from its last sign of progress."
    )
    start_timeout: float = Field(default=60.0, gt=0, description="Seconds for the server to start.")
    protocol: Literal["auto", "legacy"] = Field(
        default="auto", description="Begin as of 2026, or at once as servers before that do."
    )
    oauth: Literal["off", "browser", "client_credentials"] = Field(
        default="off", description="How to log in at the address."
    )
    client_id: str | None = Field(default=None, description="For OAuth, where one was given.")
    client_secret: SecretStr | None = Field(default=None, description="For OAuth.")
    private_key: SecretStr | None = Field(
        default=None, description="For OAuth: a PEM that proves the client, in place of its secret."
    )
    signing_algorithm: str = Field(default="RS256", description="What the private key signs with.")
    issuer: str | None = Field(
        default=None, description="For OAuth: the only server at which to log in."
    )
    scopes: tuple[str, ...] = Field(default=(), description="For OAuth.")
    client_metadata_url: str | None = Field(
        default=None, description="For OAuth: the https address that describes this client."
    )
    oauth_port: int = Field(
        default=8765, ge=1, le=65535, description="Where the browser comes back to, on loopback."
    )
    tokens: LocalPath | None = Field(
        default=None, description="The file of the tokens; one in the user's data folder."
    )
