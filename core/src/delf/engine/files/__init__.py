"""The built-in connection ``files``: a task's input files, read on the host."""
