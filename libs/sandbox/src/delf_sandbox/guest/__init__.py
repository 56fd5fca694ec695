"""The guest inside a sandbox, which uses the standard library only."""
