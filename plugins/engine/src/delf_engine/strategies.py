"""Defaults of a strategy for the configuration of its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from delf.specs import StrategySpec
from delf_engine.config import AgentConfig, make_config

if TYPE_CHECKING:
    from delf.plugins.host import PluginHost

_USUAL: Final = AgentConfig.model_fields["strategy"].default


def with_strategy(config: AgentConfig, host: PluginHost | None) -> AgentConfig:
    """Apply the settings of the configuration's strategy, which override the user's settings.

    The strategy's model is used only if the user configured none.

    Args:
        config: The configuration. It is returned unchanged for the default strategy, and for an
            unknown strategy, which is reported when the agent starts.
        host: The plugins; all installed ones when omitted.
    """
    if config.strategy == _USUAL:
        return config
    if host is None:
        from delf.plugins.host import PluginHost

        host = PluginHost.discover()
    spec = next((spec for spec in host.specs(StrategySpec) if spec.name == config.strategy), None)
    if spec is None:
        return config
    values: dict[str, Any] = {name: getattr(config, name) for name in config.model_fields_set}
    has_model = config.llm is not None or config.heavy_llm is not None
    if spec.llm is not None and not has_model:
        values["llm"] = spec.llm
    values.update(spec.settings)
    return make_config(values)
