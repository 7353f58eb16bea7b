"""Finds tools that are not shown to the model: the `search_tools` tool and the default index."""
