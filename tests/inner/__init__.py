"""Sessions of pytest that tests run: forked from a process that has imported torch, or started where that matters."""
