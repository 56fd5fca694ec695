"""Parts that delf's commands share: sessions of tasks, output of tasks, and answers."""
