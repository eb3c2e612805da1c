#pragma once

#include "tests/lib/model/tiny.h"

/// Descriptions of the released models, as far as their sizes go.
namespace isotrain::test {

inline Json deepseek_v2_lite() {
  return {{"architectures", {"DeepseekV2ForCausalLM"}},
          {"vocab_size", 102400},
          {"hidden_size", 2048},
          {"intermediate_size", 10944},
          {"moe_intermediate_size", 1408},
          {"num_hidden_layers", 27},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 16},
          {"q_lora_rank", nullptr},
          {"kv_lora_rank", 512},
          {"qk_nope_head_dim", 128},
          {"qk_rope_head_dim", 64},
          {"v_head_dim", 128},
          {"n_routed_experts", 64},
          {"n_shared_experts", 2},
          {"num_experts_per_tok", 6},
          {"n_group", 1},
          {"topk_group", 1},
          {"first_k_dense_replace", 1},
          {"max_position_embeddings", 163840},
          {"rope_scaling",
           {{"type", "yarn"},
            {"factor", 40},
            {"original_max_position_embeddings", 4096},
            {"beta_fast", 32},
            {"beta_slow", 1},
            {"mscale", 0.707},
            {"mscale_all_dim", 0.707}}}};
}

inline Json deepseek_v2() {
  return with(deepseek_v2_lite(), {{"hidden_size", 5120},
                                   {"intermediate_size", 12288},
                                   {"moe_intermediate_size", 1536},
                                   {"num_hidden_layers", 60},
                                   {"num_attention_heads", 128},
                                   {"num_key_value_heads", 128},
                                   {"q_lora_rank", 1536},
                                   {"n_routed_experts", 160},
                                   {"n_group", 8},
                                   {"topk_group", 3},
                                   {"topk_method", "group_limited_greedy"},
                                   {"routed_scaling_factor", 16.0}});
}

inline Json deepseek_v3() {
  Json json = with(deepseek_v2(), {{"architectures", {"DeepseekV3ForCausalLM"}},
                                   {"vocab_size", 129280},
                                   {"hidden_size", 7168},
                                   {"intermediate_size", 18432},
                                   {"moe_intermediate_size", 2048},
                                   {"num_hidden_layers", 61},
                                   {"n_routed_experts", 256},
                                   {"n_shared_experts", 1},
                                   {"num_experts_per_tok", 8},
                                   {"topk_group", 4},
                                   {"topk_method", "noaux_tc"},
                                   {"scoring_func", "sigmoid"},
                                   {"norm_topk_prob", true},
                                   {"routed_scaling_factor", 2.5},
                                   {"first_k_dense_replace", 3},
                                   {"num_nextn_predict_layers", 1}});
  json["rope_scaling"]["mscale"] = 1.0;
  json["rope_scaling"]["mscale_all_dim"] = 1.0;
  return json;
}

inline Json deepseek_llm(int hidden, int ffn, int layers, int heads, int kv_heads) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"vocab_size", 102400},
          {"hidden_size", hidden},
          {"intermediate_size", ffn},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"max_position_embeddings", 4096}};
}

}  // namespace isotrain::test
