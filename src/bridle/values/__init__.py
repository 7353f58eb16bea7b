"""What things are: frozen, tagged, comparable values.  Knows the standard library and msgspec, nothing else."""
