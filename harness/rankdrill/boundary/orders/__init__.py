"""Would it have mattered, had messages come in another order? A copy of the rank finds out, by doing it."""

from rankdrill.boundary.orders.trial import Orders

__all__ = ["Orders"]
