"""Ranking by words, and the catalog that prefilters search."""

from __future__ import annotations

import unicodedata

import pytest

from delf.protocols.prefilter import Catalog, CatalogEntry
from delf.tools.catalogs import search
from delf.tools.ranking import Ranking, words_of

CATALOG = Catalog(
    [
        CatalogEntry(name="mail.send_message", summary="Send an email to somebody."),
        CatalogEntry(name="shop.listInvoices", summary="Bills by state.", tags=("billing",)),
        CatalogEntry(name="shop.refund", summary="Give the money of an invoice back."),
        CatalogEntry(name="zoo.feed", summary="Feed an animal."),
    ]
)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("invoice", ["shop.listInvoices", "shop.refund"]),
        ("Send me all the emails, please!", ["mail.send_message"]),
        ("BILLING", ["shop.listInvoices"]),
        ("feed the animals", ["zoo.feed"]),
        ("volcano", []),
        ("", []),
        ("the of and", []),
    ],
)
def test_best_match_ranks_first(words: str, names: list[str]) -> None:
    assert [entry.name for entry in search(CATALOG, words)] == names


def test_ranking_weights_names_and_rare_words_higher() -> None:
    ranking = Ranking(
        [
            [("find", 3), ("a pet", 1)],
            [("delete", 3), ("a pet that find gave", 1)],
            [("list", 3), ("pets", 1)],
        ]
    )
    assert ranking.find("find pets") == [0, 1, 2]
    assert ranking.find("list pets", limit=1) == [2]


def test_search_keeps_order_of_equal_matches_and_obeys_its_limit() -> None:
    catalog = Catalog(CatalogEntry(name=f"zoo.cage_{n}", summary="A cage.") for n in range(50))
    found = search(catalog, "cages", limit=3)
    assert [entry.name for entry in found] == ["zoo.cage_0", "zoo.cage_1", "zoo.cage_2"]
    assert search(catalog, "cages", limit=0) == ()


def test_empty_catalog_finds_nothing() -> None:
    assert search(Catalog(), "anything") == ()


def test_catalog_is_a_sequence() -> None:
    assert (len(CATALOG), CATALOG[3].name, len(CATALOG[1:])) == (4, "zoo.feed", 3)
    assert CATALOG[0] in CATALOG


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listUserIDs", ["list", "user", "id"]),
        ("get_all_policies", ["policy"]),
        ("GETHTTPResponse", ["gethttp", "response"]),
        ("Boxes & classes", ["box", "class"]),
        ("Straße Übung 日本語", ["straße", "übung", "日本", "本語"]),
        ("서울의 회의, 2026年", ["서울", "울의", "회의", "2026", "年"]),
    ],
)
def test_names_and_texts_are_split_into_words(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    assert words_of(unicodedata.normalize("NFD", text)) == words


def test_letter_with_very_many_accents_takes_linear_time() -> None:
    text = "caf" + "e\N{COMBINING ACUTE ACCENT}" + "\u0300\u0316" * 200_000
    assert words_of(f"{text} noir")[-1] == "noir"


@pytest.mark.parametrize(
    ("plural", "one"),
    [
        ("releases", "release"),
        ("houses", "house"),
        ("statuses", "status"),
        ("addresses", "address"),
        ("branches", "branch"),
        ("policies", "policy"),
    ],
)
def test_plural_and_singular_are_one_word(plural: str, one: str) -> None:
    assert words_of(plural) == words_of(one) == [one]
