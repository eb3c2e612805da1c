"""Our matrix product beside PyTorch's, in turns in one run, so that both meet the same machine.

  python peer.py PATH/TO/matmul_speed [--threads 1 2] [--kinds fp32 tiles pairs] [--rounds 3]

Prints a Markdown table: GFLOP/s, the best of all rounds, and the ratio. PyTorch (pip install torch) multiplies fp32 with MKL or
oneDNN and bf16 with oneDNN; its bf16 weight gradient is added in bf16, ours in fp32. Grouped products are a loop over the experts
there. One thread is timed by its processor time, several by the clock.
"""

import argparse
import subprocess
import time

import torch


def peer_call(kind, what, tokens, n, k, groups):
    dtype = torch.float32 if kind == "fp32" else torch.bfloat16
    x = torch.randn(tokens, k).to(dtype)
    dy = torch.randn(tokens, n).to(dtype)
    w = torch.randn(groups, n, k).to(dtype)
    y, dx, dw = torch.empty_like(dy), torch.empty_like(x), torch.zeros_like(w)
    cuts = [slice(tokens * g // groups, tokens * (g + 1) // groups) for g in range(groups)]

    def forward():
        for g, rows in enumerate(cuts):
            torch.mm(x[rows], w[g].t(), out=y[rows])

    def input_gradient():
        for g, rows in enumerate(cuts):
            torch.mm(dy[rows], w[g], out=dx[rows])

    def weight_gradient():
        for g, rows in enumerate(cuts):
            dw[g].addmm_(dy[rows].t(), x[rows])

    return {"forward": forward, "input": input_gradient, "weight": weight_gradient}[what]


def peer_gflops(kind, threads, what, tokens, n, k, groups):
    torch.set_num_threads(threads)
    call = peer_call(kind, what, tokens, n, k, groups)
    clock = time.thread_time if threads == 1 else time.perf_counter
    start = clock()
    call()
    call()
    calls = max(1, int(0.001 / max((clock() - start) / 2, 1e-6)))
    best, spent, turns = float("inf"), 0.0, 0
    while spent < 0.1 or turns < 5:
        start = clock()
        for _ in range(calls):
            call()
        took = clock() - start
        best, spent, turns = min(best, took / calls), spent + took, turns + 1
    return 2 * tokens * n * k / best / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--kinds", nargs="+", default=["fp32", "tiles"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    shapes = subprocess.run([options.program, "--shapes"], capture_output=True, text=True, check=True).stdout.splitlines()
    server = subprocess.Popen([options.program, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def our_gflops(*case):
        server.stdin.write(" ".join(map(str, case)) + "\n")
        server.stdin.flush()
        return float(server.stdout.readline())

    print(f"PyTorch {torch.__version__}")
    for kind in options.kinds:
        for threads in options.threads:
            print(f"\n{kind}, {threads} thread(s)\n\n| shape | tokens x n x k | pass | ours | PyTorch | ratio |\n|---|---|---|---|---|---|")
            for shape in shapes:
                tokens, n, k, groups, name = shape.split(" ", 4)
                tokens, n, k, groups = map(int, (tokens, n, k, groups))
                for what in ("forward", "input", "weight"):
                    ours = peer = 0.0
                    for _ in range(options.rounds):
                        ours = max(ours, our_gflops(kind, threads, what, tokens, n, k, groups))
                        peer = max(peer, peer_gflops(kind, threads, what, tokens, n, k, groups))
                    cut = f" in {groups}" if groups > 1 else ""
                    print(f"| {name} | {tokens} x {n} x {k}{cut} | {what} | {ours:.0f} | {peer:.0f} | {ours / peer:.2f} |", flush=True)
    server.stdin.close()


main()
