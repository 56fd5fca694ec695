import pytest

from delf.tools.docstrings import read_docstring

GOOGLE = """Find orders,
newest first.

More about it.

Args:
    status: Which state,
        the open ones: all of them.
    limit (int, optional): How many.

Returns:
    list[dict]: The orders,
    each with its customer.

Raises:
    KeyError: never.
"""
NUMPY = """Find orders,
newest first.

More about it.

Parameters
----------
status : str
    Which state,
    the open ones: all of them.
limit : int, optional
    How many.

Returns
-------
list of dict
    The orders,
    each with its customer.

Raises
------
KeyError
    never.
"""
SPHINX = """Find orders,
newest first.

More about it.

:param str status: Which state,
    the open ones: all of them.
:param limit: How many.
:type limit: int
:returns: The orders,
    each with its customer.
:rtype: list
:raises KeyError: never.
"""


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstring_parser_reads_every_style(doc):
    read = read_docstring(doc)
    assert read.summary == "Find orders, newest first."
    assert read.notes == "More about it."
    assert read.parameters == {
        "status": "Which state, the open ones: all of them.",
        "limit": "How many.",
    }
    assert read.returns == "The orders, each with its customer."


@pytest.mark.parametrize(
    ("doc", "notes"),
    [
        (
            "Find.\n\nWeights are in grams.\n\nTotals in cents.",
            "Weights are in grams. Totals in cents.",
        ),
        ("Find.\n\nArgs:\n    a: It.\n\nOver 8 hours count double.", "Over 8 hours count double."),
        ("Find.\n\nWarning:\n    Deletes drafts.", "Warning: Deletes drafts."),
        ("Find.\n\nNotes\n-----\nTimes are UTC.", "Notes: Times are UTC."),
        ("Find.\n\nUnits:\n    Grams.\n\nArgs:\n    a: It.", "Units: Grams."),
        ("Find.\n\nExample:\n    >>> find('A-1')", "Example: >>> find('A-1')"),
        ("Find.\n\n:param a: It.\n:note: Times are UTC.", "Note: Times are UTC."),
        ("Find.\n\nRaises:\n    KeyError: never.\n\nTodo:\n    Sort them.", ""),
        ("Find.\n\nGives each\n:class:`Order` once.", "Gives each :class:`Order` once."),
    ],
    ids=range(9),
)
def test_docstring_text_beside_summary_and_arguments_is_kept(doc, notes):
    assert read_docstring(doc).notes == notes


@pytest.mark.parametrize(
    ("doc", "returns"),
    [
        ("Find.\n\nReturns: The total in cents.", "The total in cents."),
        ("Find.\n\nReturns:\n    Keys: name and size.", "Keys: name and size."),
        ("Find.\n\nReturns:\n    str: the name.", "the name."),
        ("Find.\n\nReturns:\n    A dict with 'a': its age.", "A dict with 'a': its age."),
        ("Find.\n\nReturns\n-------\nThe total.", "The total."),
        ("Find.\nReturns:\n    The total.\nNotes:\n    None.", "The total."),
        ("Find.\n\n:return: The total.", "The total."),
        ("Find. Returns: nothing here.", ""),
        ("", ""),
    ],
)
def test_docstring_gives_the_description_of_the_result(doc, returns):
    assert read_docstring(doc).returns == returns


def test_section_directly_after_the_summary_is_separate():
    read = read_docstring("Find.\nArgs:\n    a: The first.\n    b: The second.\n")
    assert read.summary == "Find."
    assert read.parameters == {"a": "The first.", "b": "The second."}
