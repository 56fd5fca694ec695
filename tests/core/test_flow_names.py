"""Tests of the names of data flows, which rules and remembered approvals compare."""

import pytest

from delf.protocols.approval import flow_between


@pytest.mark.parametrize(
    ("path", "argument", "source", "target"),
    [
        ("[3].sender", "to[0]", "crm.find.sender", "mail.send.to"),
        ("[0].address2", "to", "crm.find.address2", "mail.send.to"),
        ("rows[12].v2.name", "to.mail", "crm.find.rows.v2.name", "mail.send.to"),
        ("by_id.4711.mail", "to", "crm.find.by_id.mail", "mail.send.to"),
        ("", "to", "crm.find", "mail.send.to"),
        ("users[key 5]", "to", "crm.find.users.keys()", "mail.send.to"),
        ("[3].users[key 5]", "to", "crm.find.users.keys()", "mail.send.to"),
    ],
)
def test_flow_names_leave_out_indexes_and_keep_digits_of_names(path, argument, source, target):
    assert flow_between("crm.find", path, "mail.send", argument) == (source, target)
