"""`bridle show` and `bridle session tail`: command.py and tail.py read the log, the other files make lines of it."""
