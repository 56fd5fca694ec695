"""Which texts are secrets, and how they are kept out of everything that is written."""
