"""The demonstration asks no more questions with ``flows = "guard"`` than without."""

import pytest

from delf import Agent
from delf_demo import command
from delf_demo.shop import make_shop


@pytest.mark.parametrize("flows", ["off", "show", "guard"])
def test_demo_needs_approval_only_for_orders(flows, tmp_path):
    make_shop(tmp_path / "shop.db")
    (tmp_path / "delf.toml").write_text(
        command.shop_config(f"recorded:{command.RECORDING}", tmp_path)
    )
    asked = []
    with Agent.from_project(
        tmp_path,
        trust=True,
        flows=flows,
        on_confirm=lambda request: asked.append(request) or True,
    ) as agent:
        for task in (command.QUESTION, command.CHANGE):
            assert agent.run(task).status
    assert {request.action for request in asked} == {"shop.write"}
    assert not [request for request in asked if request.flow]
    assert len(asked) == 1
