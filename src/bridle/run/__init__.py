"""Do it: the only code that awaits, stamps time and writes to a store.  Takes no decisions."""
