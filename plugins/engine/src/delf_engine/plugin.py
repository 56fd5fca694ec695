"""The engine's plugin module, without hooks. Its public names are entry points."""
