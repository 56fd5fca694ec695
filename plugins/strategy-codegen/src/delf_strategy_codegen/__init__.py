"""The strategy ``codegen`` of delf: a model writes scripts, a sandbox runs them."""
