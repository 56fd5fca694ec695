"""Mail addresses as parameters, parsed before the call is shown for approval."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import AfterValidator

from delf_google.mailboxes import split

if TYPE_CHECKING:
    from email.headerregistry import Address

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


def parse(texts: str | Sequence[str]) -> list[Address]:
    """Parse the mail addresses in one or several texts, like a mail server does; skip blank texts.

    Args:
        texts: One or several texts, such as ``Ada <ada@example.com>, bob@example.com``.

    Raises:
        ValueError: If a text that is not blank has no address, or an invalid address.
    """
    all_texts = [texts] if isinstance(texts, str) else texts
    addresses: list[Address] = []
    for text in all_texts:
        if text.strip():
            addresses += _parse_text(text)
    return addresses


def _parse_text(text: str) -> list[Address]:
    from email.headerregistry import Address

    if _CONTROL.search(text):
        raise ValueError("an address holds a line break or another control character")
    parsed_addresses: list[Address] = []
    for mailbox in split(text):
        if not mailbox.is_valid:
            raise ValueError(f"{(mailbox.address or mailbox.text)[:200]!r} is not a mail address")
        parsed_addresses.append(Address(mailbox.name, mailbox.local, mailbox.domain))
    if not parsed_addresses:
        raise ValueError(f"{text[:200]!r} is not a mail address")
    return parsed_addresses


def people(texts: str | Sequence[str]) -> list[str]:
    """Split texts such as ``Ada <ada@example.com>, bob@example.com`` into one text per person."""
    return [str(person) for person in parse(texts)]


def addresses(texts: str | Sequence[str]) -> list[str]:
    """Return the mail addresses in some texts, without display names and duplicates."""
    return list(dict.fromkeys(person.addr_spec for person in parse(texts)))


def address(text: str) -> str:
    """Return the mail address in a text.

    Raises:
        ValueError: If the text does not have exactly one address.
    """
    parsed = addresses(text)
    if len(parsed) != 1:
        raise ValueError(f"{text[:200]!r} is not the address of one person")
    return parsed[0]


People = Annotated[str | list[str], AfterValidator(people)]
"""A parameter type for mail recipients.

The action gets one text for each person, such as ``Ada <ada@example.com>``.
"""
Addresses = Annotated[list[str], AfterValidator(addresses)]
"""A parameter type for mail addresses; the action gets them without display names."""
