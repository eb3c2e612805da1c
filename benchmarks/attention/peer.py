"""The same attention calls in PyTorch (scaled_dot_product_attention, causal), for a result page: peer.py [THREADS]"""
import sys
import time

import torch

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
torch.set_num_threads(threads)
# B, T, H, G, dq, dv as in attention.cpp
settings = [(4, 128, 4, 4, 96, 64), (4, 256, 8, 8, 96, 64), (2, 512, 8, 8, 96, 64), (1, 2048, 8, 8, 96, 64),
            (2, 512, 8, 8, 192, 128), (2, 512, 8, 2, 64, 64), (2, 512, 8, 8, 128, 128), (12, 64, 4, 4, 32, 32)]

clock = time.process_time if threads == 1 else time.perf_counter  # as attention.cpp does


def best_seconds(call):
    call()
    best, total, count = 1e30, 0.0, 0
    while count < 200 and (count < 5 or total < 0.5):
        start = clock()
        call()
        taken = clock() - start
        best, total, count = min(best, taken), total + taken, count + 1
    return best


print(f"PyTorch {torch.__version__}, {threads} thread(s)")
for dtype in (torch.float32, torch.bfloat16):
    for B, T, H, G, dq, dv in settings:
        def tensor(heads, dim):  # tokens outermost, as in a model
            return torch.randn(B, T, heads, dim).to(dtype).transpose(1, 2).requires_grad_()

        q, k, v = tensor(H, dq), tensor(G, dq), tensor(G, dv)
        call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=H != G)
        with torch.no_grad():
            forward = best_seconds(call)
        o = call()
        go = torch.randn_like(o)
        backward = best_seconds(lambda: torch.autograd.grad(o, (q, k, v), go, retain_graph=True))
        pairs = 0.5 * B * H * T * (T + 1)
        print(f"{str(dtype)[6:]:11} {B:3} {T:5} {H:3} {G:3} {dq:4} {dv:4}  {forward * 1e3:9.3f} "
              f"{2e-9 * pairs * (dq + dv) / forward:7.1f}  {backward * 1e3:9.3f} "
              f"{2e-9 * pairs * (3 * dq + 2 * dv) / backward:7.1f}")
