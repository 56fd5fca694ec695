"""Names of columns are unique, however many of them are equal in a stranger's file."""

from collections.abc import Callable, Sequence

import pytest

from delf.values.conversion import unique_names
from delf_files.tables import columns_of
from delf_sheets.cells import column_names

MANY = 50_000
NAMING: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "rows": lambda names: columns_of(names, len(names)),
    "query": lambda names: unique_names(names, str.lower),
    "tables of libraries": unique_names,
    "sheets": column_names,
}


@pytest.mark.parametrize("naming", NAMING)
def test_many_equal_column_names_get_numbers(naming):
    names = NAMING[naming](["a"] * MANY)
    assert names == ["a", *(f"a_{number}" for number in range(2, MANY + 1))]


@pytest.mark.parametrize("naming", NAMING)
def test_numbered_column_name_avoids_names_in_the_header(naming):
    names = NAMING[naming](["a", "a_2", "a", "b", "a", "a_2"])
    assert names == ["a", "a_2", "a_3", "b", "a_4", "a_2_2"]
