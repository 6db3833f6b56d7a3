"""What a finished run has to show: its description, its scores, its report."""
