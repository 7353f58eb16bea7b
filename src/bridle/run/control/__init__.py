"""Control of a run from another process: requests on one side, the listener of the running process on the other."""
