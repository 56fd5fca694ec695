"""Tasks from the command line: ``delf run``, ``delf resume`` and ``delf runs``."""
