#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/rope_table.h"
#include "kernels/router.h"

namespace isotrain {

enum class Architecture { llama, deepseek_v2, deepseek_v3 };

/// A model as a Hugging Face config.json describes it. Names follow the file where they are clear.
struct ModelConfig {
  Architecture architecture = Architecture::llama;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of dense feed-forward layers
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // Llama; equal to num_heads for the others
  int head_dim = 0;      // Llama; 0 for the others
  double norm_epsilon = 1e-6;
  double latent_norm_epsilon = 1e-6;  // q_a_layernorm and kv_a_layernorm: a constant in transformers
  double rope_theta = 10000;
  std::optional<kernels::YarnConfig> yarn;
  std::int64_t max_positions = 0;
  bool tied_embeddings = false;
  double initializer_range = 0.02;

  // Multi-head latent attention (DeepSeek-V2 and V3).
  int q_lora_rank = 0;  // 0: none
  int kv_lora_rank = 0;
  int qk_nope_head_dim = 0;
  int qk_rope_head_dim = 0;
  int v_head_dim = 0;

  // Mixture of experts (DeepSeek-V2 and V3).
  int num_experts = 0;  // routed; 0: every layer is dense
  int num_shared_experts = 0;
  int moe_intermediate_size = 0;
  int first_dense_layers = 0;  // first_k_dense_replace
  int moe_layer_freq = 1;
  kernels::RouterShape router;
  double aux_loss_alpha = 0;

  std::vector<std::string> notes;  // what of the file is ignored, for the log

  bool latent_attention() const { return architecture != Architecture::llama; }
  /// True if layer `layer` has routed experts.
  bool is_moe(int layer) const { return num_experts > 0 && layer >= first_dense_layers && layer % moe_layer_freq == 0; }
  int num_moe_layers() const { return moe_index(num_layers); }
  /// How many MoE layers are before `layer`.
  int moe_index(int layer) const;
  /// Width of a query (and key) and of a value, per head.
  int query_dim() const { return latent_attention() ? qk_nope_head_dim + qk_rope_head_dim : head_dim; }
  int value_dim() const { return latent_attention() ? v_head_dim : head_dim; }
  /// Rotated elements of a head.
  int rope_dim() const { return latent_attention() ? qk_rope_head_dim : head_dim; }
  std::int64_t shared_width() const { return std::int64_t{num_shared_experts} * moe_intermediate_size; }
};

/// Reads the text of a config.json. `source` names it in messages. Throws Error if it is not JSON, and one UsageError
/// that lists every missing, wrong-typed, unsupported and contradictory field.
///
/// Sizes must be given. These may be missing and are then what transformers takes: head_dim (hidden_size /
/// num_attention_heads), num_key_value_heads (num_attention_heads), rms_norm_eps 1e-6, rope_theta 10000,
/// initializer_range 0.02, tie_word_embeddings false, hidden_act silu, attention_bias and mlp_bias false,
/// max_position_embeddings 2048 (V3: 4096), moe_layer_freq 1, first_k_dense_replace 0 (V3: 3), norm_topk_prob false
/// (V3: true), routed_scaling_factor 1 (V3: 2.5), topk_method greedy (V3: noaux_tc), scoring_func softmax (V3:
/// sigmoid), n_group and topk_group 1 (V3: must be given), n_shared_experts none, aux_loss_alpha 0.001 (V3: 0.0001,
/// which is the paper's), yarn's beta_fast 32, beta_slow 1.
ModelConfig parse_model_config(std::string const& text, std::string const& source);
/// The same from a file; throws Error if it cannot be read.
ModelConfig read_model_config(std::filesystem::path const& file);

/// Throws UsageError, naming the numbers that would do, if heads, key/value heads or feed-forward widths do not divide
/// by `slices`.
void check_slices(ModelConfig const& config, int slices);

}  // namespace isotrain
