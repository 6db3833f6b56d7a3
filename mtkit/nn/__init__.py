"""Layers that know nothing about words, files or training."""
