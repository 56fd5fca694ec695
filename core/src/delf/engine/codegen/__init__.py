"""The strategy ``codegen``: a model writes scripts, a sandbox runs them."""
