"""Strings only: lines, normalisation, subwords, the synthetic bitext."""
