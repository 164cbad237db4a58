"""Slips put into correct programs, one at a time, on one rank each."""
