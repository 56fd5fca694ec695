"""Trust in a folder: its files, and the user's decisions about them."""
