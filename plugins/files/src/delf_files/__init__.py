"""The connection ``files``: what a task's input files hold, read on the host."""
