"""The parts of the site beside ``docs/``: pages made from the code, and linked files."""
