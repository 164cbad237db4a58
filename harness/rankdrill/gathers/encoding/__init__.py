"""How objects become bytes and come back: frames, tensors out of band, archives, and who may unpickle what."""
