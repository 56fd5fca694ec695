import pytest

from delf.network.urls import join_url, split_http_url, split_url, without_login

INVALID = ["http://[::1", "http://a:99999/", "http://a:-1", "http://a:b/"]


@pytest.mark.parametrize("url", INVALID)
def test_url_with_invalid_host_or_port_is_not_split(url: str) -> None:
    assert split_url(url) is None
    assert split_http_url(url) is None
    assert join_url("http://a/", url) is None
    assert join_url(url, "/b") is None


@pytest.mark.parametrize("url", ["", "a:80", "ftp://a", "http://", "http:///b", "//a/b"])
def test_url_of_another_scheme_or_without_host_is_no_http_url(url: str) -> None:
    assert split_url(url) is not None
    assert split_http_url(url) is None


def test_http_url_is_split() -> None:
    parts = split_http_url("HTTPS://user@[::1]:8443/a?b=c")
    assert parts is not None
    assert (parts.scheme, parts.hostname, parts.port, parts.path) == ("https", "::1", 8443, "/a")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://name:key@host/v1?version=2", "https://host/v1"),
        ("name:key@host:8080", "host:8080"),
        ("https://host/v1?key=secret&next=https://a:b@other", "https://host/v1"),
        ("https://name:k?y@host", "https://host"),
        ("name:k#y@host", "host"),
        ("https://host?@other", "https://host"),
        ("https://host#@other/v1", "https://host"),
        ("https://name:key@host?mail=a@other", "https://host"),
        ("https://host/@name", "https://host/@name"),
        ("host", "host"),
    ],
)
def test_shown_url_has_no_login_and_no_query(url: str, shown: str) -> None:
    assert without_login(url) == shown


def test_relative_url_is_joined() -> None:
    assert join_url("http://a:8080/b/c", "../d") == "http://a:8080/d"
    assert join_url("", "http://a") == "http://a"
