"""What commands of delf share: sessions of tasks, what is written of them, and answers."""
