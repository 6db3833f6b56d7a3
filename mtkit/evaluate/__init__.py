"""What a translation is worth: scores, word alignments and plots, from strings and arrays alone."""
