"""Failures of a call, in one redacted line, and whether to retry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast
from urllib.parse import urlsplit

from delf.errors import (
    ConfigurationError,
    DelfError,
    LLMExecutionError,
    ModelConfigurationError,
)
from delf.network import retries
from delf.network.proxies import Proxy, proxy_for
from delf.records import dataclass
from delf_model_providers.endpoint import Endpoint

Retry = Literal["no", "few", "yes"]

_MAX_CHARS: Final = 300
_TEMPORARY: Final = frozenset({408, 409, 425, 429})
_TOO_LONG: Final = re.compile(
    r"maximum context length|context_length_exceeded|context window|prompt is too long"
    r"|input token count.{0,40}exceeds|exceeds the maximum number of tokens|too many tokens"
    r"|exceeds? (the )?(available )?context|maximum (prompt|model) length|input is too long"
    r"|`inputs` tokens|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
# Matches messages about an account without credit.
#
# Gemini uses the second phrase for rate limits, too, but then gives a time to wait.
_NO_CREDIT: Final = re.compile(
    r"insufficient_quota|check your plan and billing|credit balance is too low", re.IGNORECASE
)
_BAD_KEY: Final = re.compile(
    r"api key not valid|api_key_invalid|api key expired|invalid api key|incorrect api key",
    re.IGNORECASE,
)
_NO_MODEL: Final = re.compile(
    r"invalid model name|not a valid model|unknown model|model_not_found|model not exist"
    r"|model\b.{0,80}\b(does not exist|not found|is not available|has been (deprecated|retired))",
    re.IGNORECASE,
)
_TOKENS: Final = re.compile(
    r"(?<=[?&]key=)[^&\s'\"]+|(?<=Bearer )[\w.~+/=-]{6,}|\b(?:sk|rk|pk|gsk|xai)-[\w*.-]{6,}"
    r"|\bgsk_\w{6,}|\bAIza[\w-]{20,}"
)
_RETRY_DELAY: Final = re.compile(r'"retryDelay":\s*"([\d.]+)s"')


class BrokenStreamError(Exception):
    """A stream ended without its end marker."""


class UnreadableError(Exception):
    """A response did not follow the protocol."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failed call.

    Args:
        message: The error message, redacted and in one line.
        provider: The provider's name.
        status: The HTTP status; None if the server sent no response.
        hint: The suggested next step for the user.
        retry: Whether to retry: ``no``, ``few`` times (the server is unreachable) or ``yes``.
        retry_after: The seconds that the provider asks to wait.
        is_configuration_error: Whether the configuration of the model has to be changed.
        note: The class of the original exception, for debugging.
        is_prompt_too_long: Whether the prompt was too long for the model.
    """

    message: str
    provider: str
    status: int | None = None
    hint: str | None = None
    retry: Retry = "no"
    retry_after: float | None = None
    is_configuration_error: bool = False
    note: str | None = None
    is_prompt_too_long: bool = False

    def error(self) -> DelfError:
        """Return the error to raise.

        The vendor's exception is not its cause, because that exception may contain the key.
        """
        error: DelfError
        if self.is_configuration_error:
            error = ModelConfigurationError(self.message, hint=self.hint)
        else:
            error = LLMExecutionError(
                self.message,
                provider=self.provider,
                status=self.status,
                too_long=self.is_prompt_too_long,
                hint=self.hint,
            )
        if self.note:
            error.add_note(self.note)
        return error


def scrub(text: str, secrets: Sequence[str]) -> str:
    """Return a text in one line, in which secrets and anything like a key are redacted."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return _TOKENS.sub("***", " ".join(text.split()))


def shortened(text: str, secrets: Sequence[str]) -> str:
    """Redact and shorten a provider's message."""
    scrubbed = scrub(text, secrets)
    if len(scrubbed) <= _MAX_CHARS:
        return scrubbed
    return f"{scrubbed[: _MAX_CHARS - 1]}…"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, then its cause or context, and so on."""
    seen_ids: set[int] = set()
    while error is not None and id(error) not in seen_ids:
        seen_ids.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def class_names_of(errors: Iterable[BaseException]) -> frozenset[str]:
    """Return the class names of exceptions, including those of all base classes."""
    return frozenset(kind.__name__ for error in errors for kind in type(error).__mro__)


def retry_after(headers: Mapping[str, str], text: str) -> float | None:
    """Return the seconds that a provider asks to wait; None if the response names no valid time.

    Args:
        headers: The response headers, with lower-case or case-insensitive names.
        text: The response body.
    """
    try:
        if milliseconds := headers.get("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if delay_match := _RETRY_DELAY.search(text):
            return float(delay_match.group(1))
    except ValueError:
        return None
    return retries.retry_after(headers)


def message_in(body: Any) -> str | None:
    """Return the error message in a parsed body of any provider; None without a message."""
    if not isinstance(body, dict):
        return None
    fields = cast("dict[str, Any]", body)
    for name in ("message", "detail", "error"):
        value: Any = fields.get(name)
        if isinstance(value, str) and value:
            return value
        if inner_message := message_in(value):
            return inner_message
    return None


def by_status(
    status: int, provider_message: str, endpoint: Endpoint, retry_after: float | None = None
) -> Failure:
    """Make a failure for a response with an error status.

    Args:
        status: The HTTP status. Some providers answer 400 for a bad key, an unknown model or an
            account without credit; the failure then has the usual status, such as 401.
        provider_message: The provider's message, redacted.
        endpoint: The endpoint.
        retry_after: The seconds that the provider asks to wait.
    """
    usual_status = _standard_status(status, provider_message, retry_after)
    label = endpoint.label
    model = endpoint.model
    retry: Retry = "yes" if usual_status in _TEMPORARY or usual_status >= 500 else "no"
    is_prompt_too_long = usual_status == 413 or (
        usual_status in (400, 422) and _TOO_LONG.search(provider_message) is not None
    )
    message: str = f"{label} answered {status}: {provider_message}"
    hint: str | None = "the provider refuses this request: check the model and its settings"
    if usual_status == 401:
        message = f"{label} rejected the key ({endpoint.key_location}): {provider_message}"
        hint = "check the key; it may be mistyped, expired or of another provider"
        is_in_environment = endpoint.key_location.isupper()  # a name such as OPENAI_API_KEY
        if is_in_environment:
            hint += f"; delf keys set {endpoint.key_location} keeps another one"
    elif usual_status == 403:
        message = f"{label} refuses access to {model!r}: {provider_message}"
        hint = "check what this key may use, and whether the provider serves this country"
    elif usual_status in (404, 405):
        message = f"{label} does not know the model {model!r}: {provider_message}"
        hint = "check the model's name"
        if endpoint.custom:
            hint += f" and the path of base_url (now {_path(endpoint)!r})"
    elif is_prompt_too_long:
        message = f"the prompt is too long for {model!r} at {label}: {provider_message}"
        hint = "use a model with a longer context, fewer tools, or shorter inputs"
    elif usual_status == 407:
        message = f"{proxy_of(endpoint) or 'a proxy'} wants a login (407): {message}"
        hint = "give it in the variable: http://user:password@host:port"
    elif usual_status == 402:
        message = f"the account at {label} has no credit left ({status}): {provider_message}"
        hint = "check its plan and billing with the provider; waiting does not help"
    elif usual_status == 429:
        message = f"{label} limits the rate of calls (429): {provider_message}"
        hint = "wait, run fewer tasks at once, or raise the limit with the provider"
        if retry_after:
            hint = f"the provider asks to wait {retry_after:.0f} s; {hint}"
    elif 300 <= usual_status < 400:
        message = f"{label} answered with a redirect ({usual_status}), which is not followed"
        hint = "set base_url to the address of the redirect"
    elif usual_status >= 500:
        hint = "the provider has a problem of its own: try again later, or another model"
    return Failure(
        message=message,
        provider=endpoint.provider,
        status=usual_status,
        hint=hint,
        retry=retry,
        retry_after=retry_after,
        is_prompt_too_long=is_prompt_too_long,
    )


def _standard_status(status: int, provider_message: str, retry_after: float | None) -> int:
    """Return the status that most providers use for the error that a message describes."""
    if status >= 500:
        return status
    if status in (400, 403) and _BAD_KEY.search(provider_message):
        return 401
    # With a time to wait, the same message is about a rate limit.
    if _NO_CREDIT.search(provider_message) and not retry_after:
        return 402
    # A message about a request that is too long may name the model, but the model exists.
    is_too_long = _TOO_LONG.search(provider_message) is not None
    if status in (400, 422) and not is_too_long and _NO_MODEL.search(provider_message):
        return 404
    return status


def failure_without_response(
    class_names: frozenset[str], details: str, endpoint: Endpoint, timeout: float
) -> Failure:
    """Make a failure for a request without a readable response.

    Args:
        class_names: The class names of the exception and its causes.
        details: The exception's message, redacted.
        endpoint: The endpoint.
        timeout: The timeout of the request in seconds.
    """
    if (environment_failure := _environment_failure(class_names, details, endpoint)) is not None:
        return environment_failure
    label = endpoint.label
    where = endpoint.address or "its server"
    server_hint = f"is the server at {where} running?" if endpoint.custom else "check the network"
    retry: Retry = "no"
    # ``class_names`` includes base classes and causes, so test for the most specific names first.
    if class_names & {"ConnectTimeout", "ConnectionTimeoutError"}:
        message = f"{label}: no connection to {where} in time"
        retry = "few"
        hint = server_hint
    elif class_names & {"TimeoutError", "TimeoutException", "APITimeoutError", "Timeout"}:
        message = f"{label} did not answer within {timeout:g} s"
        retry = "yes"
        hint = "raise the setting 'timeout', or use a faster model"
    elif class_names & {"gaierror", "ClientConnectorDNSError"}:
        message = f"{label}: the host name of {where} cannot be resolved"
        retry = "few"
        hint = "check base_url" if endpoint.custom else "check the network"
    elif class_names & {"SSLError", "ClientSSLError", "CertificateError"}:
        message = f"{label}: no trusted TLS connection to {where}: {details}"
        hint = "check base_url"
        if proxy := proxy_of(endpoint):
            message = f"{label}: no trusted TLS connection by {proxy}: {details}"
            hint = "check if the proxy allows the request; NO_PROXY lists hosts that need no proxy"
    elif class_names & {"ConnectionRefusedError", "ConnectError", "ClientConnectorError"}:
        retry = "few"
        if proxy := proxy_of(endpoint):
            message = f"{label}: not reachable by {proxy}"
            hint = "is the proxy running? NO_PROXY names hosts that need none"
        else:
            is_refused = "ConnectionRefusedError" in class_names
            reason = " (connection refused)" if is_refused else ""
            message = f"{label}: {where} is not reachable{reason}"
            hint = server_hint
    elif class_names & _DROPPED:
        message = f"{label} dropped the connection"
        retry = "yes"
        hint = server_hint
    elif class_names & UNREADABLE:
        return unreadable(endpoint)
    else:
        message, hint = f"{label} failed: {details}", "try again; --debug shows more"
    return Failure(message=message, provider=endpoint.provider, hint=hint, retry=retry)


def _environment_failure(
    class_names: frozenset[str], details: str, endpoint: Endpoint
) -> Failure | None:
    """Make a failure for an error in the proxy or certificate settings; None for other errors."""
    label = endpoint.label
    proxy = proxy_of(endpoint)
    proxy_fault, hint = _proxy_fault(proxy)
    if proxy_fault:
        message = f"no request to {label} is possible: {proxy_fault}"
    elif "CertificatesError" in class_names:
        message = f"no request to {label} is possible: {details}"
        hint = "correct or unset the environment variable that names the certificates"
    elif class_names & PROXY_ERRORS:
        # The end of the details would name the proxy a second time.
        reason = details.removesuffix(f" (by {proxy})")
        message = f"{proxy} refused the connection to {label}: {reason}"
        hint = "check the proxy's address and login; NO_PROXY names hosts that need none"
    else:
        return None
    return Failure(message=message, provider=endpoint.provider, hint=hint)


def _proxy_fault(proxy: Proxy | None) -> tuple[str, str | None]:
    """Return what is wrong with a proxy's address, and a hint; ``("", None)`` if it is valid."""
    try:
        if proxy is not None:
            proxy.checked_address()
    except ConfigurationError as error:
        return error.message, error.hint
    return "", None


def proxy_of(endpoint: Endpoint) -> Proxy | None:
    """Return the proxy for requests to an endpoint; None if there is none."""
    # Without a configured address, the requests go to an https address of the provider.
    return proxy_for(endpoint.base_url or "https://api")


def unreadable(endpoint: Endpoint, reason: str | None = None) -> Failure:
    """Make a failure for a response that does not follow the API's protocol.

    Args:
        endpoint: The endpoint.
        reason: The fault of the response.
    """
    proxy = proxy_of(endpoint)
    sender = endpoint.label
    hint = None
    if proxy is not None:
        sender = f"{endpoint.label}, or {proxy},"
        hint = "check if the proxy allows the request; NO_PROXY lists hosts that need no proxy"
    elif endpoint.custom:
        hint = f"check base_url: its path is {_path(endpoint)!r}"
    message = f"{sender} sent an answer that is not a chat completion"
    return Failure(
        message=f"{message}: {reason}" if reason else message, provider=endpoint.provider, hint=hint
    )


def _path(endpoint: Endpoint) -> str:
    return urlsplit(endpoint.base_url or "").path or "/"


PROXY_ERRORS: Final = frozenset(
    {"ProxyError", "ClientHttpProxyError", "ClientProxyConnectionError"}
)
"""The class names of exceptions that a proxy causes."""

# The class names of exceptions after a dropped connection.
_DROPPED: Final = frozenset(
    {
        "ReadError",
        "WriteError",
        "CloseError",
        "RemoteProtocolError",
        "ServerDisconnectedError",
        "ClientPayloadError",
        "ClientOSError",
        "ConnectionError",
        "IncompleteRead",
        "BrokenStreamError",
        "ConnectionClosed",
    }
)

# The class names of exceptions while a response was parsed.
UNREADABLE: Final = frozenset(
    {
        "AttributeError",
        "JSONDecodeError",
        "KeyError",
        "TypeError",
        "UnreadableError",
        "ValidationError",
    }
)
