"""The guest inside a sandbox: standard library only, and nothing of the host."""
