"""Tools of MCP servers, through the official `mcp` package (the extra `bridle[mcp]`).

    server        `server(…)` and `McpServer`: the settings of a server, its tools, resources and prompts
    link          the connection of a server, opened when it is needed and again after it was lost
    config_file   servers from the `mcpServers` JSON of other programs
    names         names of servers and tools
    definitions   a listed tool as a `ToolSpec`
    connection    the task that owns a connection
    stdio         a server as a child process
    contents      lists and reads resources and prompts
    offers        resources and prompts as values, and the tools that read resources
    requests      requests of a server to the model or to a person
    oauth         `OAuth(…)`; sign_in has the code
    results       contents of results, resources and prompts as parts

A server is not trusted: its texts are limited and made visible, its output is bounded, and its annotations count
only if the user says so.  Only connection, contents, requests, results, sign_in, stdio and tool_filter
import the `mcp` package; they are loaded with the first connection.
"""
