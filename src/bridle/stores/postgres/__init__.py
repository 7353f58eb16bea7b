"""The PostgreSQL store (`bridle[postgres]`)."""
