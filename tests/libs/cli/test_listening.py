"""Tests of the sockets at which servers listen."""

import socket

import pytest

from delf.errors import ConfigurationError
from delf_cli.listening import address_of, bind, listening

ADDRESSES = {"127.0.0.1", "::1"}


@pytest.fixture
def ipv6() -> None:
    """Skip the test on a machine without IPv6."""
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")


@pytest.mark.usefixtures("ipv6")
def test_localhost_is_reached_by_ipv4_and_ipv6():
    with listening("localhost", 0) as listeners:
        port = listeners[0].getsockname()[1]
        for address in ADDRESSES:
            socket.create_connection((address, port), timeout=5).close()
        assert address_of(listeners[0]) == f"http://127.0.0.1:{port}"
    assert [listener.fileno() for listener in listeners] == [-1, -1]


@pytest.mark.usefixtures("ipv6")
def test_localhost_with_one_taken_address_is_refused():
    with bind("::1", 0) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ConfigurationError, match="cannot listen on ::1"),
            listening("localhost", port),
        ):
            pass
    with bind("127.0.0.1", port):  # it is free again
        pass


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_other_hosts_have_one_listening_socket(host: str):
    with listening(host, 0) as listeners:
        assert len(listeners) == 1
