"""What goes wrong with the keys of stores, and with file locks."""
