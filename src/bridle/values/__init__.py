"""What things are: frozen, tagged, comparable.  Knows the standard library and msgspec only."""
