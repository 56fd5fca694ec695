"""Resources behind the names of actions."""

import pytest

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.resources import (
    kinds_of_change,
    looks_only,
    plain_change,
    resource_of,
    with_readers,
)


@pytest.mark.parametrize(
    ("name", "only"),
    [
        ("desk.list_tickets", True),
        ("api.readFlowRuns", True),
        ("mail.search", True),
        ("desk.get_or_create_ticket", False),
        ("desk.close_ticket", False),
        ("desk.tickets", False),
        ("desk.search_and_delete", False),
    ],
)
def test_name_says_that_an_action_only_reads(name, only):
    assert looks_only(name) is only


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("desk.close_ticket", "ticket"),
        ("desk.listTickets", "ticket"),
        ("desk.tickets_partial_update", "ticket"),
        ("mail.search", "mail"),
        ("add", "add"),
    ],
)
def test_actions_are_grouped_by_their_first_noun(name, resource):
    assert resource_of(name) == resource


def catalog(*names, reads=()):
    return Catalog(CatalogEntry(name=n, summary="", reads=n in reads) for n in (*names, *reads))


@pytest.mark.parametrize(
    ("chosen", "names", "after"),
    [
        ("desk.close_ticket", ["desk.list_tickets", "desk.get_ticket", "desk.list_users"], {1, 0}),
        (
            "api.set_flow_run_state",
            ["api.read_flow_runs", "api.read_flows", "api.count_flow_runs"],
            {0},
        ),
        ("api.run_from_plan", ["api.read_runs", "api.read_plan", "other.read_plan"], {0, 1}),
        ("mail.send", ["mail.search", "mail.read", "drive.search"], {0, 1}),
        ("api.tickets_close_create", ["api.tickets_list", "api.customers_list"], {0}),
    ],
)
def test_action_is_followed_by_readers_of_its_resource(chosen, names, after):
    found = list(with_readers([chosen], catalog(chosen, *names)))
    assert found[0] == chosen
    assert set(found[1:]) == {names[place] for place in after}


def test_effect_says_that_an_action_reads_where_its_name_does_not():
    names = catalog("desk.close_ticket", "desk.ticket_history", reads=["desk.ticket"])
    assert list(with_readers(["desk.close_ticket"], names)) == ["desk.close_ticket", "desk.ticket"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("update_task", ("update", {"task"})),
        ("api.tickets_partial_update", ("update", {"ticket"})),
        ("create_flow_run", ("create", {"flow", "run"})),
        ("delete_tag", ("delete", {"tag"})),
        ("add_tag_for_task", ("create", {"tag", "task"})),
        ("close_ticket", None),
        ("list_tasks", None),
        ("update", None),
    ],
)
def test_plain_changes_are_found_by_names(name, change):
    found = plain_change(name)
    assert (found and (found.kind, set(found.nouns))) == change


@pytest.mark.parametrize(
    ("step", "kinds"),
    [
        ("Mark the task as done", {"update"}),
        ("Add a comment", {"create"}),
        ("Open an issue", {"create"}),
        ("Close the open issue", {"update"}),
        ("remove the tag", {"delete"}),
        ("Which tasks are open?", set()),
        ("List all tasks", set()),
        ("", set()),
    ],
)
def test_steps_ask_for_kinds_of_change(step, kinds):
    assert kinds_of_change(step) == kinds
