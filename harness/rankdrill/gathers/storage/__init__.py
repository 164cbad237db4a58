"""Payloads in files: written aside and put in place whole, found by those who share the directory, removed."""
