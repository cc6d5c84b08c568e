"""Serve a GGUF model on a free port of loopback with llama.cpp: python serve.py MODEL CONTEXT. Prints its URL; ends with its input."""

import socket
import sys

import xllamacpp

with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.port = int(sys.argv[2]), 1, port
params.cpuparams.n_threads = 2
params.warmup, params.use_jinja = False, True
# the same question has the same answer
params.sampling.temp, params.sampling.seed = 0.0, 1
server = xllamacpp.Server(params)
print(f"{server.listening_address}/v1", flush=True)
sys.stdin.read()
