"""Hangs that are certain from one moment on, and how long it takes from there to the verdict."""
