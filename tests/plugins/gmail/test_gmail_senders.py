"""The sender of a mail, as far as Gmail checked it."""

import pytest

from delf_gmail.reading import verified_sender

PASS = "mx.google.com; spf=pass (google.com: domain of a@x designates 1.2.3.4); dmarc=pass (p=NONE) header.from=firm.example"


def headers(*pairs):
    return {"headers": [{"name": name, "value": value} for name, value in pairs]}


@pytest.mark.parametrize("sender", ["ada@firm.example", "Ada <ada@Firm.Example>"])
def test_verified_sender_passed_authentication_for_its_domain(sender):
    found = verified_sender(headers(("Authentication-Results", PASS), ("From", sender)))
    assert found.lower() == "ada@firm.example"


@pytest.mark.parametrize(
    ("results", "sender"),
    [
        ("", "ada@firm.example"),
        (PASS.replace("dmarc=pass", "dmarc=fail"), "ada@firm.example"),
        (PASS.replace("mx.google.com", "mx.evil.example"), "ada@firm.example"),
        (PASS, "ada@evil.example"),
        (PASS, "ada@firm.example, eve@evil.example"),
        (PASS, '"ada@firm.example" <eve@evil.example>'),
        ('mx.google.com; spf=pass smtp.mailfrom="; dmarc=pass header.from=firm.example;"@evil.example', "ada@firm.example"),
        ("mx.google.com; spf=none (; dmarc=pass header.from=firm.example;)", "ada@firm.example"),
        (f"mx.google.com; dmarc=fail header.from=firm.example; {PASS}", "ada@firm.example"),
    ],
)  # fmt: skip
def test_unverified_sender_is_none(results, sender):
    assert verified_sender(headers(("Authentication-Results", results), ("From", sender))) is None


def test_sender_check_ignores_forged_headers():
    failed = PASS.replace("dmarc=pass", "dmarc=fail")
    pairs = [("Authentication-Results", failed), ("Authentication-Results", PASS)]
    assert verified_sender(headers(*pairs, ("From", "ada@firm.example"))) is None
