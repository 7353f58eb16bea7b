"""What makes a prompt begin otherwise than the last time: found in the code, and by loading it again."""
