"""Whole tasks: three operations of a real specification, a write that is approved, no secret."""

from __future__ import annotations

import json
import pathlib
from urllib.parse import parse_qs

import pytest

from delf.testing import DelfProject
from support.openapi_specs import PETS
from support.raw_http import Reply, Seen, threaded_server

pytestmark = pytest.mark.slow

KEY = "sk_test_5ecret"

BILLING = """\
found = await stripe.get_customers(email="ada@example.org", limit=1, desc="whose invoice it is")
customer = found["data"][0]["id"]
invoice = await stripe.post_invoices(
    customer=customer, metadata={"order": "7"}, automatic_tax={"enabled": True}, desc="the invoice"
)
again = await stripe.get_invoices_invoice(invoice=invoice["id"], full_response=True)
print(again["status"], again["body"]["id"], again["body"]["status"])
"""


class Billing:
    """A stand-in for the API."""

    def __init__(self) -> None:
        self.made: list[dict[str, list[str]]] = []

    def __call__(self, seen: Seen) -> Reply:
        if seen.header("authorization") != f"Bearer {KEY}":
            return Reply(401, b'{"error": {"message": "no such key"}}')
        if (seen.method, seen.path) == ("GET", "/v1/customers"):
            return Reply(200, b'{"object": "list", "data": [{"id": "cus_1"}]}')
        if (seen.method, seen.path) == ("POST", "/v1/invoices"):
            self.made.append(parse_qs(seen.body.decode()))
            return Reply(200, b'{"id": "in_1", "status": "draft"}')
        if (seen.method, seen.path) == ("GET", "/v1/invoices/in_1"):
            return Reply(200, b'{"id": "in_1", "status": "draft"}')
        return Reply(404, b"{}")


PEEKING = """\
for look in (lambda: open("/proc/self/environ").read(), lambda: vars(stripe), lambda: globals()):
    try:
        print(repr(look()))
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("approve", ["all", "none"])
def test_stripe_operations_run_on_the_command_line(
    approve: str, specs: pathlib.Path, delf_project: DelfProject
) -> None:
    names = ["get_customers", "post_invoices", "get_invoices_invoice"]
    billing = Billing()
    with threaded_server(billing) as server:
        delf_project.write_config(f"""
            [agent]
            journal = "sql"
            retry_count = 0

            [connections.stripe]
            type = "openapi"
            spec = {json.dumps(str(specs / "stripe_spec3_2022-04-12.json"))}
            base_url = "{server.url}"
            allow = {json.dumps(names)}
            token = "${{STRIPE_KEY}}"
        """)
        llm = delf_project.install_model(BILLING + PEEKING)
        task = ("run", "Bill Ada for order 7.", "-c", "stripe", "--llm", llm, "--sandbox", "local")
        secret = {"STRIPE_KEY": KEY, "DELF_JOURNAL_SQL_URL": "runs.db"}
        done = delf_project.run(*task, "--approve", approve, "--events", **secret)
    if approve == "all":
        assert "200 in_1 draft" in done.succeeded().stdout
        assert [m["metadata[order]"] for m in billing.made] == [["7"]]
    else:
        assert done.exit_code != 0
        assert billing.made == []
    journal = b"".join(p.read_bytes() for p in delf_project.root.glob("runs.db*"))
    assert b"post_invoices" in journal
    assert KEY.encode() not in journal
    for text in (done.stdout, done.stderr, *delf_project.prompts):
        assert KEY not in text


@pytest.mark.parametrize("key", ["spec", "connections.openapi.spec"])
def test_inspect_command_lists_the_operations(key: str, delf_project: DelfProject) -> None:
    delf_project.write("pets.json", json.dumps(PETS))
    result = delf_project.run("inspect", "openapi", "--set", f"{key}=pets.json", "--json")
    found = result.succeeded().json
    assert (found["total"], found["methods"][0]["name"]) == (5, "list_pets")
