"""The HTTP API below `/api`: one table of routes, from which the routes and the OpenAPI document are made."""
