"""The program that starts a sandboxed command, in a process of its own.

    python -I -S -c BOOT FOLDER STAGE SPEC

It uses the standard library only and is started without site-packages: it starts in about 20 ms, and no code of the
user's environment runs between the harness and the sandbox.  `outer` makes the resource group, then isolates the
command with bubblewrap or by itself.  `inner` runs inside bubblewrap and gives up the last rights before the command
starts.  Any failure ends the launcher with a line on standard error, and the command does not run.
"""
