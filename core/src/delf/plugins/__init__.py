"""The plugin runtime: discovery by metadata, checks before an import, loading one by one."""
