"""The settings of a connection: the server, its transport, and its permissions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from delf.settings import HttpUrl, LocalPath, NamedValues, PluginSettings, SecretStr, SentValues
from delf.types import Effect


class MCPSettings(PluginSettings):
    """The settings of a connection to an MCP server.

    The server is a program, a URL, or a name in an ``mcp.json``.
    """

    command: str | None = Field(default=None, description="The program of the server.")
    args: tuple[str, ...] = Field(default=(), description="The arguments of the program.")
    env: NamedValues = Field(
        default_factory=dict,
        description="Environment variables of the program, in addition to PATH, HOME and the like, "
        "certificates and proxies.",
    )
    cwd: LocalPath | None = Field(default=None, description="The working folder of the program.")
    url: HttpUrl | None = Field(
        default=None, description="The address of a server (streamable HTTP)."
    )
    headers: SentValues = Field(
        default_factory=dict, description="Headers for every request to the address."
    )
    config: LocalPath | None = Field(
        default=None,
        description=(
            'A file in the format of other MCP clients: {"mcpServers": {…}}. ${NAME} in '
            "it is a variable of the environment."
        ),
    )
    server: str | None = Field(
        default=None,
        description=("The server's name in that file; the connection's name when omitted."),
    )
    effects: dict[str, Effect] = Field(
        default_factory=dict,
        description=(
            "Effects of tools, by name or pattern; all other tools need approval, and so do "
            "tools that the server changes or adds later. The server's own statements are ignored."
        ),
    )
    max_tools: int = Field(
        default=2000, ge=1, le=20_000, description="A server with more tools is an error."
    )
    sample: bool = Field(
        default=True,
        description=(
            "Learn the shapes of results that no schema describes, but no values, for "
            "later tasks and programs."
        ),
    )
    sampling: Literal["ask", "allow", "refuse"] = Field(
        default="ask",
        description=("Whether the server may ask the agent's model: `ask`, `allow` or `refuse`."),
    )
    roots: tuple[LocalPath, ...] = Field(
        default=(), description="Folders that the server may work in."
    )
    timeout: float = Field(
        default=60.0, gt=0, description="Seconds for a call, from its last sign of progress."
    )
    start_timeout: float = Field(default=60.0, gt=0, description="Seconds for the server to start.")
    protocol: Literal["auto", "legacy"] = Field(
        default="auto",
        description=(
            "The handshake: `auto` for that of 2026 and else the earlier one, or "
            "`legacy` for the earlier one from the start."
        ),
    )
    oauth: Literal["off", "browser", "client_credentials"] = Field(
        default="off", description="How to log in at the address."
    )
    client_id: str | None = Field(
        default=None, description=("For OAuth: the client's id, if the login server gave one.")
    )
    client_secret: SecretStr | None = Field(
        default=None, description=("For OAuth: the client's secret.")
    )
    private_key: SecretStr | None = Field(
        default=None,
        description=(
            "For OAuth: a private key in PEM that proves the client, instead of a secret."
        ),
    )
    signing_algorithm: str = Field(
        default="RS256", description=("The algorithm with which the private key signs.")
    )
    issuer: HttpUrl | None = Field(
        default=None,
        description=(
            "For OAuth: the only server for the login; by default the one that the MCP "
            "server names. A `client_secret` or `private_key` goes to another server "
            "than the MCP server only if `issuer` names it. A refresh token goes only "
            "to the server that gave it."
        ),
    )
    scopes: tuple[str, ...] = Field(default=(), description=("For OAuth: the scopes to ask for."))
    client_metadata_url: HttpUrl | None = Field(
        default=None, description="For OAuth: the https address that describes this client."
    )
    oauth_port: int = Field(
        default=8765,
        ge=1,
        le=65535,
        description=("The loopback port to which the browser returns after login."),
    )
    tokens: LocalPath | None = Field(
        default=None,
        description=(
            "The file for tokens, which only its owner can read; by default in the "
            "user's data folder."
        ),
    )
