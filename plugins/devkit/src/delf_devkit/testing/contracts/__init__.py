"""Contract suites: tests that every plugin of a kind must pass, one module for each kind.

A suite is a class of tests. Subclass it in a test module under a name that starts with ``Test``,
and give the fixture that its docstring names. Set the flags for the features of the plugin; a test
whose flag is off is not collected.
"""
