"""Small programs with one mistake each, and correct programs that resemble them; see `programs`."""
