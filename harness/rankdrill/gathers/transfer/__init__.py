"""How payloads move once their sizes are agreed: within a machine, between machines, by GPU."""
