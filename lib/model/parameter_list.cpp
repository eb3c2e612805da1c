#include "lib/model/parameter_list.h"

#include <algorithm>
#include <string>

#include "lib/base/error.h"
#include "lib/base/random.h"

namespace isotrain {

namespace {

/// Collects the parameters of a model in order.
class List {
 public:
  void matrix(std::string const& name, std::int64_t out, std::int64_t in, Cut cut = Cut::none) {
    add({.name = name, .shape = {out, in}, .cut = cut});
  }
  void router(std::string const& name, std::int64_t out, std::int64_t in) {
    add({.name = name, .shape = {out, in}, .segment = Segment::fp32});
  }
  void norm(std::string const& name, std::int64_t width) {
    add({.name = name, .shape = {width}, .segment = Segment::fp32, .initial = Initial::ones, .decay = false});
  }
  void gated_unit(std::string const& name, std::int64_t hidden, std::int64_t width) {
    matrix(name + ".gate_proj", width, hidden, Cut::rows);
    matrix(name + ".up_proj", width, hidden, Cut::rows);
    matrix(name + ".down_proj", hidden, width, Cut::columns);
  }
  void expert(int expert, std::int64_t hidden, std::int64_t width) {
    expert_ = expert;
    std::string const name = "mlp.experts." + std::to_string(expert);
    matrix(name + ".gate_proj", width, hidden);
    matrix(name + ".up_proj", width, hidden);
    matrix(name + ".down_proj", hidden, width);
    expert_ = -1;
  }
  /// Decoder layer of what follows; -1 and the number of layers: before the first and after the last.
  void layer(int layer, std::string prefix) {
    layer_ = layer;
    prefix_ = std::move(prefix);
  }
  std::vector<Parameter> take() { return std::move(list_); }

 private:
  void add(Parameter parameter) {
    parameter.name = prefix_ + parameter.name + ".weight";
    parameter.layer = layer_;
    parameter.expert = expert_;
    list_.push_back(std::move(parameter));
  }

  std::string prefix_;
  int layer_ = 0;
  int expert_ = -1;
  std::vector<Parameter> list_;
};

// Matrices with one input stand next to each other, so that they can be multiplied as one.
void add_attention(List& list, ModelConfig const& config) {
  std::int64_t const d = config.hidden_size;
  std::int64_t const heads = config.num_heads;
  if (!config.latent_attention()) {
    list.matrix("self_attn.q_proj", heads * config.head_dim, d, Cut::rows);
    list.matrix("self_attn.k_proj", std::int64_t{config.num_kv_heads} * config.head_dim, d, Cut::rows);
    list.matrix("self_attn.v_proj", std::int64_t{config.num_kv_heads} * config.head_dim, d, Cut::rows);
    list.matrix("self_attn.o_proj", d, heads * config.head_dim, Cut::columns);
    return;
  }
  std::int64_t const q_width = heads * config.query_dim();
  if (config.q_lora_rank > 0) {
    list.matrix("self_attn.q_a_proj", config.q_lora_rank, d);
    list.matrix("self_attn.kv_a_proj_with_mqa", config.kv_lora_rank + config.qk_rope_head_dim, d);
    list.matrix("self_attn.q_b_proj", q_width, config.q_lora_rank, Cut::rows);
    list.norm("self_attn.q_a_layernorm", config.q_lora_rank);
  } else {
    list.matrix("self_attn.q_proj", q_width, d, Cut::rows);
    list.matrix("self_attn.kv_a_proj_with_mqa", config.kv_lora_rank + config.qk_rope_head_dim, d);
  }
  list.norm("self_attn.kv_a_layernorm", config.kv_lora_rank);
  list.matrix("self_attn.kv_b_proj", heads * (config.qk_nope_head_dim + config.v_head_dim), config.kv_lora_rank,
              Cut::rows);
  list.matrix("self_attn.o_proj", d, heads * config.v_head_dim, Cut::columns);
}

void add_feed_forward(List& list, ModelConfig const& config, int layer) {
  std::int64_t const d = config.hidden_size;
  if (!config.is_moe(layer)) {
    list.gated_unit("mlp", d, config.intermediate_size);
    return;
  }
  list.router("mlp.gate", config.num_experts, d);
  for (int e = 0; e < config.num_experts; ++e) list.expert(e, d, config.moe_intermediate_size);
  if (config.num_shared_experts > 0) list.gated_unit("mlp.shared_experts", d, config.shared_width());
}

}  // namespace

std::vector<Parameter> model_parameters(ModelConfig const& config) {
  List list;
  list.layer(-1, "");
  list.matrix("model.embed_tokens", config.vocab_size, config.hidden_size, Cut::rows);
  for (int layer = 0; layer < config.num_layers; ++layer) {
    list.layer(layer, "model.layers." + std::to_string(layer) + ".");
    list.norm("input_layernorm", config.hidden_size);
    add_attention(list, config);
    list.norm("post_attention_layernorm", config.hidden_size);
    add_feed_forward(list, config, layer);
  }
  list.layer(config.num_layers, "");
  list.norm("model.norm", config.hidden_size);
  if (!config.tied_embeddings) list.matrix("lm_head", config.vocab_size, config.hidden_size, Cut::rows);
  return list.take();
}

void initialize(ParameterTable const& table, std::span<float> flat, FlatRange range, std::uint64_t seed,
                double stddev) {
  expects(flat.size() == static_cast<std::size_t>(range.size()), "as many elements as the range has");
  std::fill(flat.begin(), flat.end(), 0.0F);
  auto const& pieces = table.pieces();
  auto const first = std::partition_point(pieces.begin(), pieces.end(),
                                          [&](Piece const& piece) { return piece.end() <= range.begin; });
  for (auto const& piece : std::span(first, pieces.end())) {
    if (piece.offset >= range.end) break;
    auto const& parameter = table.parameter(piece);
    auto const id = stream_id(parameter.name);
    for_each_run(parameter, piece, range, [&](std::int64_t offset, std::int64_t element, std::int64_t count) {
      auto const part = flat.subspan(static_cast<std::size_t>(offset - range.begin), static_cast<std::size_t>(count));
      if (parameter.initial == Initial::ones) {
        std::fill(part.begin(), part.end(), 1.0F);
      } else {
        fill_normal(part, static_cast<std::uint64_t>(element), seed, id, stddev);
      }
    });
  }
}

}  // namespace isotrain
