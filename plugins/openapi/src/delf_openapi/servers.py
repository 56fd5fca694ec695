"""Servers of an operation's requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import quote

from delf.errors import ConnectionConfigurationError
from delf.network.urls import join_url, split_http_url
from delf_openapi.document import Document
from delf_openapi.operations import Operation

_MAX_VARIABLES: Final = 50
_SAFE_PATH: Final = "/-._~%:@!$&'()*+,;="


def server_of(
    document: Document, operation: Operation, base_url: str | None, values: Mapping[str, str]
) -> str:
    """Return the base address of an operation, without a trailing slash.

    Args:
        document: The specification.
        operation: The operation. Its own servers override the servers of its path item, which
            override those of the specification.
        base_url: The configured address, which overrides all servers; None without one.
        values: The values of variables in addresses, such as ``{region}``, by variable.

    Raises:
        ConnectionConfigurationError: If no address is known.
    """
    if base_url:
        return _normalise_url("", base_url)
    # The address of a server may be relative to the address of the specification.
    spec_url = document.trees.uri
    specification = document.at("#")
    for part in (operation.raw, operation.item, specification):
        servers = part.get("servers")
        if isinstance(servers, list) and servers:
            address = _choose_address(cast("list[Any]", servers), values)
            if address is not None:
                return _normalise_url(spec_url, address)
    return _normalise_url(spec_url, "/")  # OpenAPI's default without servers


def _choose_address(servers: list[Any], values: Mapping[str, str]) -> str | None:
    """Return the first server's address, or the same address with https if it is listed, too.

    None if no server has an address.
    """
    addresses = [
        _fill_variables(cast("dict[str, Any]", s), values) for s in servers if isinstance(s, dict)
    ]
    urls = [url for url in addresses if url is not None]
    if not urls:
        return None
    first = urls[0]
    if first.startswith("http://"):
        secure = "https://" + first.removeprefix("http://")
        if secure in urls:
            return secure
    return first


def _fill_variables(server: dict[str, Any], values: Mapping[str, str]) -> str | None:
    """Return a server's URL with its variables filled in; None without a URL."""
    url = server.get("url")
    if not isinstance(url, str):
        return None
    variables: Any = server.get("variables")
    listed = cast("dict[str, Any]", variables) if isinstance(variables, dict) else {}
    for name, variable in list(listed.items())[:_MAX_VARIABLES]:
        fields = cast("dict[str, Any]", variable) if isinstance(variable, dict) else {}
        value = values[name] if name in values else fields.get("default")
        if value is not None:
            url = url.replace(f"{{{name}}}", str(value))
    return url


def _normalise_url(base: str, url: str) -> str:
    """Return a server's URL in absolute form, without query and without a trailing slash.

    Raises:
        ConnectionConfigurationError: If the URL is incomplete.
    """
    address = join_url(base, url) or ""
    parts = split_http_url(address)
    has_variables = "{" in address
    if parts is None or parts.hostname is None or has_variables:
        text = "the specification does not say where the API is"
        if has_variables:
            text += f": {url.partition('?')[0][:120]!r} is not a whole address"
        raise ConnectionConfigurationError(
            text,
            hint="give base_url, or path_params for the {variables} of its server",
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}" + quote(parts.path.rstrip("/"), safe=_SAFE_PATH)


def operation_path(path: str) -> str:
    """Percent-encode a path template except for its placeholders."""
    # A fragment tells operations of one path apart in some specifications; it is never sent.
    path = path.partition("#")[0]
    # Split the path into the placeholders and the texts between them.
    pieces = path.replace("}", "}\0").replace("{", "\0{").split("\0")
    return "".join(
        piece if piece[:1] == "{" else quote(piece, safe=_SAFE_PATH + "?") for piece in pieces
    )
