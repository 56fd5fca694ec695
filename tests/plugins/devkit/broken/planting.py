"""One class for each planted bug: what breaks the contract, and the tests that have to notice."""


def planting(suite):
    """Return a decorator that turns a class into a test suite of it."""

    def breaks(*tests, says="", **more):
        def made(kind):
            about = {"kind": kind, "__module__": kind.__module__, "__doc__": kind.__doc__}
            return type(kind.__name__, (suite,), {**about, **more, "breaks": tests, "says": says})

        return made

    return breaks
