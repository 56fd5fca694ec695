"""The contract of every connection, kept by Gmail."""

from __future__ import annotations

from typing import Any

import pytest

from delf.testing import Call, ConnectionContract
from delf_gmail import Gmail
from support.google import GoogleServer
from support.google.fixtures import USER

MAIL = b"From: bob@example.com\r\nTo: ada@example.com\r\nSubject: Hello\r\n\r\nHello Ada"


class TestGmail(ConnectionContract):
    check_refuses = False
    logs_in = False  # tests/libs/google has refused logins, of all services at once
    untested = ("thread", "reply", "draft", "send_draft", "trash", "attachment", "label")
    calls = (
        Call("search", query="subject:hello"),
        Call("read", message="m000001"),
        Call("labels"),
        Call("archive", messages="m000001"),
        Call("send", to="bob@example.com", subject="Hi", text="Hello"),
    )
    failing_calls = (
        Call("read", message="nowhere"),
        Call("send", to="nobody", subject="Hi"),
        Call("send", to="bob@example.com", subject="Hi\r\nBcc: eve@example.com"),
        Call("attachment", message="m000001", name="x.pdf"),
        Call("label", messages="m000001", remove="Nowhere"),
    )

    @pytest.fixture
    def connection(self, google: GoogleServer, connect: Any) -> Any:
        google.gmail.deliver(USER, MAIL)
        return connect(Gmail)

    def _secrets(self, connection: Any) -> set[str]:
        return super()._secrets(connection) | {"GOCSPX-client-secret-of-tests"}
