"""Trust of a folder: its files, and what the person decided about them."""
