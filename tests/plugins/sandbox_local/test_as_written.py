"""Scripts as models write them do what they mean."""

import pytest

from support.as_written import kinds, written, wrong_ones


@pytest.mark.parametrize("kind", kinds())
def test_script_as_models_write_it_gives_the_expected_result(kind, tmp_path):
    assert wrong_ones(written(kind), "local", tmp_path) == {}
