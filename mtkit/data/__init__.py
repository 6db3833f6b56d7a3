"""Sentence pairs from their sources to padded batches."""
