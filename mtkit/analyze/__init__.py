"""What the chapter says of mechanisms, measured: gradients, complexity, attention. No training, no text."""
