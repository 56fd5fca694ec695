"""Tests of resources, which are recognised from the names of actions."""

import re

import pytest

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.catalogs import best_first, score_actions
from delf.tools.resources import (
    add_readers,
    change_of,
    has_read_verb,
    is_about_resource,
    kinds_of_change,
    readers_mentioned,
    resource_of,
    shared_words,
)
from delf.tools.stubs import omitted_names_text


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
def test_read_verb_is_recognised_in_a_name(name, only):
    assert has_read_verb(name) is only


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
def test_actions_are_grouped_by_first_noun(name, resource):
    assert resource_of(name) == resource


@pytest.mark.parametrize(
    ("parameter", "name", "about"),
    [
        ("flow_runs", "api.read_flow_runs", True),
        ("ticket", "desk.update_ticket", True),
        ("ticket", "desk.list_tickets", True),
        ("ticket", "desk.update_ticket_label", False),
        ("id", "desk.list", False),
    ],
)
def test_parameter_may_be_named_after_the_resource(parameter, name, about):
    assert is_about_resource(parameter, name) is about


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
    found = list(add_readers([chosen], catalog(chosen, *names)))
    assert found[0] == chosen
    assert set(found[1:]) == {names[place] for place in after}


def test_action_with_declared_read_effect_counts_as_read_action():
    names = catalog("desk.close_ticket", "desk.ticket_history", reads=["desk.ticket"])
    assert list(add_readers(["desk.close_ticket"], names)) == ["desk.close_ticket", "desk.ticket"]


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
def test_plain_change_actions_are_recognised_by_name(name, change):
    found = change_of(name)
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
def test_kinds_of_change_are_recognised_in_a_step(step, kinds):
    assert kinds_of_change(step) == kinds


CLUSTER = [
    f"{verb}_core_v1_namespaced_{noun}"
    for noun in ("pod", "secret", "config_map", "service", "event")
    for verb in ("list", "read", "create", "replace", "delete", "patch")
]
CLUSTER += [f"{verb}_core_v1_namespace" for verb in ("list", "create", "replace", "patch")]


def test_words_shared_by_most_names_are_not_resources():
    shared = shared_words(CLUSTER)
    assert shared == {"core", "v1", "namespaced"}
    assert resource_of("patch_core_v1_namespaced_config_map", shared) == "config"
    assert change_of("patch_core_v1_namespace", shared).nouns == {"namespac"}
    assert shared_words(["list_core_pods", "list_core_nodes"]) == frozenset()


def test_list_contains_every_action_although_names_share_words():
    listed = omitted_names_text((f"k8s.{name}" for name in CLUSTER), 5_000)
    for name in CLUSTER:
        assert name in listed


def test_list_names_the_first_actions_and_counts_the_others():
    first = ["shop.get_bill", "shop.list_bill", "shop.find_thing7"]
    names = [f"shop.list_{noun}_{number}" for number in range(50) for noun in ("cup", "pot")]
    listed = omitted_names_text([*first, *names], 1_500)
    assert "#   get_bill, list_bill\n#   find_thing7\n" in listed
    assert "list_pot_49" not in listed
    counted = sum(int(number) for number in re.findall(r"(?:cup|pot) \((\d+)\)", listed))
    assert counted + listed.count("list_cup") + listed.count("list_pot") == 100


@pytest.mark.parametrize(
    ("task", "first"),
    [
        ("Add the label team=blue to the namespace shop", "patch_core_v1_namespace"),
        ("Remove the label team from the namespace shop", "patch_core_v1_namespace"),
        ("Create a secret in the namespace shop", "create_core_v1_namespaced_secret"),
        ("Delete the pod web-1", "delete_core_v1_namespaced_pod"),
    ],
)
def test_plain_change_ranks_high_despite_shared_words(task, first):
    catalog = Catalog(CatalogEntry(name=name, summary="") for name in CLUSTER)
    assert first in best_first(catalog, task)[:5]


def test_simplest_read_action_of_a_named_resource_is_found():
    names = ("get_customers", "get_customers_search", "delete_subscriptions", "get_subscriptions")
    catalog = Catalog(CatalogEntry(name=f"api.{name}", summary="") for name in names)
    task = "Cancel the subscriptions of the customer ann@example.com"
    assert readers_mentioned(task, catalog) == ["api.get_subscriptions", "api.get_customers"]
    assert readers_mentioned("Say hello", catalog) == []


def test_tool_matching_one_sentence_of_a_task_ranks_first():
    names = ("send_mail", "create_event", "book_room", "list_rooms", "delete_event", "read_mail")
    catalog = Catalog(CatalogEntry(name=name, summary=name.replace("_", " ")) for name in names)
    task = "The team has grown a lot this year. We are many people now. Book the room for a party."
    assert next(iter(score_actions(catalog, task))) == names.index("book_room")
    both = "Send a mail to the whole team of the new year, and book the room for a party on Friday."
    assert {*list(score_actions(catalog, both))[:2]} == {
        names.index("send_mail"),
        names.index("book_room"),
    }
