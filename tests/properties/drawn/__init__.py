"""Programs that are drawn, each with one mistake at most: what they are, how they are written, what is true of them."""
