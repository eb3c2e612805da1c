#include "lib/train/numerics.h"

#include <algorithm>
#include <map>

#include "lib/base/error.h"
#include "lib/comm/agree.h"

namespace isotrain {
namespace {

/// Collects the products of linear layers y = x W^T.
class Products {
 public:
  Products(ModelOptions const& options, kernels::ProductInput precision) : options_(options), precision_(precision) {}

  enum class Sliced { nothing, in, out };

  void add(std::string const& name, std::int64_t out, std::int64_t in, Sliced sliced) {
    int const slices = options_.slices;
    auto const products = kernels::linear_products(name, out, in, precision_, sliced == Sliced::in ? slices : 1,
                                                   sliced == Sliced::out ? slices : 1,
                                                   checked_samples * options_.sequence, options_.sequence);
    shapes_.insert(shapes_.end(), products.begin(), products.end());
  }

  void add_gated_unit(std::string const& name, std::int64_t width, std::int64_t hidden, Sliced out, Sliced in) {
    add(name + ".gate_proj", width, hidden, out);
    add(name + ".down_proj", hidden, width, in);
  }

  std::vector<kernels::ProductShape> take() { return std::move(shapes_); }

 private:
  // Not the micro-batch: the fingerprint of the check must not depend on what the bits do not depend on.
  static constexpr std::int64_t checked_samples = 2;

  ModelOptions const& options_;
  kernels::ProductInput precision_;
  std::vector<kernels::ProductShape> shapes_;
};

}  // namespace

std::vector<kernels::ProductShape> model_products(ModelConfig const& c, ModelOptions const& options,
                                                  kernels::ProductInput precision) {
  using enum Products::Sliced;
  Products products(options, precision);
  std::int64_t const d = c.hidden_size;
  std::int64_t const heads = c.num_heads;
  if (c.latent_attention()) {
    if (c.q_lora_rank > 0) products.add("q_a_proj", c.q_lora_rank, d, nothing);
    products.add("q_proj", heads * c.query_dim(), c.q_lora_rank > 0 ? c.q_lora_rank : d, out);
    products.add("kv_a_proj", c.kv_lora_rank + c.qk_rope_head_dim, d, nothing);
    products.add("kv_b_proj", heads * (c.qk_nope_head_dim + c.v_head_dim), c.kv_lora_rank, out);
  } else {
    products.add("q_proj", heads * c.query_dim(), d, out);
    products.add("k_proj", std::int64_t{c.num_kv_heads} * c.head_dim, d, out);
  }
  products.add("o_proj", d, heads * c.value_dim(), in);
  if (c.num_moe_layers() < c.num_layers) products.add_gated_unit("mlp", c.intermediate_size, d, out, in);
  if (c.num_moe_layers() > 0) {
    products.add_gated_unit("experts", c.moe_intermediate_size, d, nothing, nothing);
    if (c.num_shared_experts > 0) products.add_gated_unit("shared_experts", c.shared_width(), d, out, in);
  }
  products.add("lm_head", c.vocab_size, d, out);
  return products.take();
}

std::uint64_t check_numerics(Cpu const& at, Communicator const& comm, std::string const& host,
                             std::vector<kernels::ProductShape> const& products) {
  std::uint64_t const mine = run_collectively(comm, [&] { return kernels::numerics_selfcheck(at, products); });
  auto const all = comm.all_gather(mine);
  auto const hosts = comm.all_gather(host);
  std::map<std::uint64_t, int> votes;
  for (auto const fingerprint : all) ++votes[fingerprint];
  if (votes.size() == 1) return mine;
  auto const most =
      std::ranges::max_element(votes, [](auto const& a, auto const& b) { return a.second < b.second; })->first;
  std::string odd;
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] != most) odd += (odd.empty() ? "rank " : ", rank ") + std::to_string(r) + " on " + hosts[r];
  }
  throw AgreedError("the kernels give other bits on " + odd,
                    "the start-up check differs from that of " + std::to_string(votes[most]) + " other ranks",
                    "is the program there another build, or the processor damaged?");
}

}  // namespace isotrain
