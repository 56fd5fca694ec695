"""An agent's sandbox: its choice, its measured isolation, and its start."""
