"""Scripts as models write them do what they mean."""

import pytest

from support.as_written import kinds, written, wrong_ones


@pytest.mark.parametrize("kind", kinds())
def test_script_as_written_does_what_it_means(kind, tmp_path):
    assert wrong_ones(written(kind), "local", tmp_path) == {}
