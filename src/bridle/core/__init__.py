"""What to do next: pure functions over values.  Decides, never does."""
