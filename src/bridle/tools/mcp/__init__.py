"""Tools of MCP servers, through the official `mcp` package (the extra `bridle[mcp]`).

    server        `server(…)` and `McpServer`: the settings of a server, and its tools
    config_file   servers from the `mcpServers` JSON of other programs
    names         names of servers and tools
    definitions   a listed tool as a `ToolSpec`
    connection    the task that owns a connection
    stdio         a server as a child process
    results       results, resources and prompts as parts

A server is not trusted: its texts are limited and made visible, its output is bounded, and its annotations count
only if the user says so.  Only connection, stdio and results import the `mcp` package; they are loaded with the
first connection.
"""
