"""``delf google``: the login that delf's plugins for Google use."""
