import pytest


@pytest.fixture(autouse=True)
def quick_templates() -> None:
    """Templates start here as they do for users."""
