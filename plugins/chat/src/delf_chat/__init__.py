"""The conversation on a terminal: ``delf chat``, and ``agent.run_chat()``."""
