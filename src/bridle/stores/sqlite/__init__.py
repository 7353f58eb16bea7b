"""The store in one SQLite file: store, worker thread, file, rows."""
