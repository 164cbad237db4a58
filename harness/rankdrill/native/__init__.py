"""The few functions that every watched call goes through, in C, where that was built; it is optional."""

from rankdrill.native.lane import LANE_VARIABLE, hot, lane

__all__ = ["LANE_VARIABLE", "hot", "lane"]
