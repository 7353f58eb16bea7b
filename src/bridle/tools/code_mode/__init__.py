"""Python programs of a model that call tools as functions: their process, and the functions they see.

Here is what runs on both ends of the pipe between the harness and a program.  What a call does is not decided here:
run/calls/code_tool.py gives every call of a program to the loop, like a call of a model.
"""
