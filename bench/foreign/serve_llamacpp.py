"""Serve a model file with llama.cpp's own server, embedded: `python serve_llamacpp.py FILE`. Prints its address."""

import signal
import sys

import xllamacpp

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {"tiny"}
parameters.hostnames = ["127.0.0.1"]
parameters.port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
parameters.n_ctx = 8192
parameters.n_parallel = 1
parameters.use_jinja = True
parameters.warmup = False
server = xllamacpp.Server(parameters)
print(f"\nlistening {server.listening_address}", flush=True)
signal.sigwait({signal.SIGINT, signal.SIGTERM})
