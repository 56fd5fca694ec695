"""What happened in a task: its log, its journal, and its replay."""
