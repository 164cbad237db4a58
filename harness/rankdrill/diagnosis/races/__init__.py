"""Message races: who receives from anybody, and what it does next depends on who came first."""
