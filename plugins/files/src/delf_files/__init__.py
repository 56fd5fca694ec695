"""The connection ``files``: reads the contents of a task's input files on the host."""
