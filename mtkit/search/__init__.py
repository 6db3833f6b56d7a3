"""From a source sentence to its translation; knows a model only through the protocol of `mtkit.models`."""

from mtkit.search.beam import beam_search
from mtkit.search.greedy import greedy_search
from mtkit.search.hypothesis import Hypothesis
from mtkit.search.penalties import LengthPenalty

__all__ = ["Hypothesis", "LengthPenalty", "beam_search", "greedy_search"]
