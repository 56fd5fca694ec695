"""The plugin runtime: found by metadata, checked before an import, loaded one by one."""
