"""Tests of which addresses count as addresses of the public internet."""

from __future__ import annotations

import ipaddress

import pytest

from delf.network.addresses import is_private, is_public


@pytest.mark.parametrize(
    "text",
    [
        "93.184.216.34",
        "2606:4700::1111",
        "64:ff9b::5db8:d822",
        "2002:5db8:d822::",
        "::ffff:1.1.1.1",
    ],
)
def test_internet_addresses_are_public(text: str) -> None:
    assert is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1"),
        *("168.63.129.16", "::", "::1", "fc00::1", "fe80::1", "fec0::1", "ff02::1", "2001:db8::1"),
        *("::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "2001:0:1:2:3:4:80ff:fffe"),
    ],
)
def test_private_and_tunnelled_addresses_are_not_public(text: str) -> None:
    assert not is_public(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    ("host", "private"),
    [
        *((host, True) for host in ("127.0.0.1", "2130706433", "0x7f.1", "[::1]", "localhost")),
        *((host, False) for host in ("93.184.216.34", "[2606:4700::1111]", "unknown.invalid")),
        ("a" * 70 + ".invalid", False),
    ],
)
def test_private_host_is_recognised_in_every_notation(host: str, private: bool) -> None:
    assert is_private(host) is private
