"""Code shared by all wire families; nothing that only one family needs."""
