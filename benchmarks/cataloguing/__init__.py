"""The catalogue's programs, run and read without rankdrill, and the tables of what everybody said of them."""
