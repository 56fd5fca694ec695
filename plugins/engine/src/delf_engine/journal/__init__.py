"""Events of a task: its log, its journal, and its replay."""
