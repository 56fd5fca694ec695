"""Meanings of litellm's exceptions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from delf_model_providers.endpoint import Endpoint
from delf_model_providers.failures import (
    PROXY_ERRORS,
    UNREADABLE,
    Failure,
    by_status,
    chain,
    class_names_of,
    failure_without_response,
    message_in,
    retry_after,
    shortened,
    unreadable,
)

_CLASS_NAMES: Final = re.compile(r"^(?:[\w.]*(?:Error|Exception|Timeout)\b\s*(?:[:-]\s*|(?=\w)))+")
# The text after these words repeats the beginning of litellm's message.
_REPETITION: Final = " Original exception:"
_CONNECTION_ERRORS: Final = PROXY_ERRORS | {"CertificatesError", "ClientSSLError", "SSLError"}
_NO_COMPLETION: Final = re.compile(
    r"Unable to get json response|converting to valid response|[Pp]rovider returned .*'choices'"
    r"|Empty or invalid response"
)


def explain(error: BaseException, endpoint: Endpoint, timeout: float) -> Failure:
    """Convert a litellm exception to a failure.

    Args:
        error: The exception.
        endpoint: The endpoint.
        timeout: The timeout of the call in seconds.
    """
    errors = list(chain(error))
    kinds = class_names_of(errors)
    # Prefer the connection's own message, the last of the chain, to litellm's "Connection error."
    connection_messages = [
        str(each) for each in errors if class_names_of([each]) & _CONNECTION_ERRORS
    ]
    full_message = connection_messages[-1] if connection_messages else _provider_message(errors)
    message = shortened(full_message, endpoint.secrets)
    # A response that does not follow the protocol is a failure, even with the status 200.
    is_malformed = bool(kinds & UNREADABLE) or _NO_COMPLETION.search(message) is not None
    status, headers = _response_status(errors, is_malformed=is_malformed)
    if status is not None:
        wait = retry_after(headers, " ".join(str(e) for e in errors))
        if "ContextWindowExceededError" in kinds:
            message = f"{message} (too many tokens)"
        failure = by_status(status, message, endpoint, wait)
    else:
        failure = _unanswered(kinds, message, endpoint, timeout, is_malformed=is_malformed)
    return replace(failure, note=f"litellm raised {type(error).__name__}")


def _unanswered(
    kinds: frozenset[str], details: str, endpoint: Endpoint, timeout: float, *, is_malformed: bool
) -> Failure:
    """Make a failure for a call without a usable response, from the names of litellm's exceptions.

    Args:
        kinds: The class names of the exception and its causes.
        details: The exception's message, redacted.
        endpoint: The endpoint.
        timeout: The timeout of the call in seconds.
        is_malformed: Whether there is a response, but it does not follow the protocol.
    """
    failure = failure_without_response(kinds, details, endpoint, timeout)
    can_be_retried = failure.retry != "no"  # such as a timeout
    if can_be_retried or kinds & _CONNECTION_ERRORS:
        return failure
    if is_malformed:
        return unreadable(endpoint)
    if "APIConnectionError" in kinds:  # litellm's class for every other failed connection
        connection_error = frozenset({"ConnectionError"})
        return failure_without_response(connection_error, details, endpoint, timeout)
    return _failure_of_configuration(failure, kinds, details, endpoint)


def _failure_of_configuration(
    failure: Failure, kinds: frozenset[str], details: str, endpoint: Endpoint
) -> Failure:
    """Explain a failure whose cause is an unknown provider or a missing key.

    Any other failure is returned unchanged.
    """
    if "NOT provided" in details:  # litellm's "LLM Provider NOT provided"
        return replace(
            failure,
            message=f"no provider is known for the model {endpoint.model!r}",
            hint="give the address of its server, base_url = 'http://host/v1', "
            "or begin the model's name with another provider, such as 'openai/'",
            is_configuration_error=True,
        )
    if "AuthenticationError" in kinds:
        label = endpoint.label
        return replace(
            failure,
            message=f"{label} has no usable key: {details}",
            hint=f"the key is missing ({label})",
        )
    return failure


def _response_status(
    errors: Sequence[BaseException], *, is_malformed: bool
) -> tuple[int | None, Mapping[str, str]]:
    """Return the status and headers of the provider's response; None if the status is unknown.

    Args:
        errors: The exception of litellm, and its causes.
        is_malformed: Whether there is a response, but it does not follow the protocol.
    """
    for error in errors:
        if type(error).__module__.partition(".")[0] in ("httpx", "openai"):
            response: Any = getattr(error, "response", None)
            if isinstance(getattr(response, "status_code", None), int):
                return response.status_code, response.headers
    top: Any = errors[0]
    headers: Any = getattr(top, "litellm_response_headers", None)
    status: Any = getattr(top, "status_code", None)
    # Ignore the status of a malformed response, which does not explain the failure. Ignore it
    # without headers, too: there was no response, and litellm made up the status.
    explains_failure = not is_malformed and bool(headers)
    if isinstance(status, int) and explains_failure:
        return status, headers
    return None, {}


def _provider_message(errors: Sequence[BaseException]) -> str:
    """Return the error message of the provider, without litellm's additions."""
    for error in errors:
        body: Any = getattr(error, "body", None)
        if text := message_in(body):
            return text
    # litellm may put the body of the response, a JSON object, into the text of its exception.
    for error in errors:
        text = str(error)
        start = text.find("{")
        end = text.rfind("}")
        if 0 <= start < end and (message := message_in(_parsed(text[start : end + 1]))):
            return message
    lines = str(errors[0]).strip().splitlines()
    if not lines:
        return type(errors[0]).__name__
    # "OpenAIException - no model x Original exception: no model x" -> "no model x"
    unrepeated_message, _, _ = lines[0].partition(_REPETITION)
    return _CLASS_NAMES.sub("", unrepeated_message)


def _parsed(text: str) -> Any:
    """Parse the JSON in a message of litellm; return None if there is no valid JSON."""
    # litellm may quote a response like a Python string, with a backslash before each apostrophe.
    for candidate in (text, text.replace("\\'", "'")):
        try:
            return json.loads(candidate)
        except (ValueError, RecursionError):
            continue
    return None
