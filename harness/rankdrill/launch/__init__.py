"""Scripts that know nothing of rankdrill, run on the ranks of a world as torchrun would run them."""

from rankdrill.launch.launched import Launched, launch
from rankdrill.launch.script import Script

__all__ = ["Launched", "Script", "launch"]
