"""A chained record of who asked for what, who approved it, and what was done."""
