"""delf over HTTP: the command ``serve``, the page, and the approval channel ``web``."""
