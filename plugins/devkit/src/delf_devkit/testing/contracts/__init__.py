"""Contract suites: what every plugin of a kind must do, one file a kind.

A suite is a class of tests. Subclass it in a test module under a name that starts with
``Test``, and give the fixture that its docstring names. Set its flags to what the plugin can do.
A test whose flag is off is not collected.
"""
