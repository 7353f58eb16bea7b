"""What we need from the outside, one protocol each, with its contract in must, may and never."""
