"""llama.cpp's own HTTP server on a free loopback port, with the small model that the tests bring.

Prints its address once it answers, and ends when its standard input is closed: it can't outlive the tests.
"""

import sys

from xllamacpp import CommonParams, Server


def main(weights: str) -> None:
    params = CommonParams()
    params.model.path = weights
    params.model_alias = {"smollm2"}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = 8192
    params.n_parallel = 2
    params.n_predict = 256
    params.verbosity = 0
    # One thread: several wait for each other by spinning, and on a busy machine that takes minutes.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.ui = False
    server = Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
