#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "lib/model/config.h"
#include "lib/model/options.h"

/// The definition of the models in double: DeepSeek LLM (Llama), DeepSeek-V2 (arXiv:2405.04434) and DeepSeek-V3
/// (arXiv:2412.19437), forward pass, losses and balancing losses of one sequence. Simple loops, a row at a time.
namespace isotrain::reference {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // one per position

struct ModelWeights {
  std::map<std::string, Row> tensor;  // Hugging Face name -> row-major elements
  std::map<int, Row> router_bias;     // layer -> e_score_correction_bias
};

struct ModelLoss {
  double tokens = 0;   // sum of the token losses
  double balance = 0;  // sum over layers of the balancing losses
  Rows logits;
};

inline Row operator*(double factor, Row x) {
  for (double& value : x) value *= factor;
  return x;
}
inline Row& operator+=(Row& x, Row const& y) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}
inline Row part(Row const& x, std::size_t begin, std::size_t count) {
  return {x.begin() + static_cast<std::ptrdiff_t>(begin), x.begin() + static_cast<std::ptrdiff_t>(begin + count)};
}
inline double dot(Row const& x, Row const& y) {
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
}

/// One sequence through one model.
class Model {
 public:
  Model(ModelConfig const& config, ModelWeights const& weights, Yarn yarn, kernels::BalanceLoss balance)
      : c_(config), w_(weights), yarn_(config.yarn && yarn != Yarn::off), balance_(balance) {}

  ModelLoss run(std::vector<std::int32_t> const& tokens, std::vector<std::int32_t> const& targets) const {
    ModelLoss loss;
    Rows x;
    for (auto const token : tokens) x.push_back(table_row("model.embed_tokens", token));
    for (int layer = 0; layer < c_.num_layers; ++layer) {
      std::string const name = "model.layers." + std::to_string(layer) + ".";
      Rows const u = norm(x, name + "input_layernorm", c_.norm_epsilon);
      add(x,
          c_.latent_attention() ? latent_attention(name + "self_attn.", u) : grouped_attention(name + "self_attn.", u));
      Rows const v = norm(x, name + "post_attention_layernorm", c_.norm_epsilon);
      if (c_.is_moe(layer)) {
        add(x, experts(layer, name + "mlp.", v, loss.balance));
      } else {
        add(x, gated_units(name + "mlp.", v));
      }
    }
    x = norm(x, "model.norm", c_.norm_epsilon);
    for (std::size_t t = 0; t < x.size(); ++t) {
      Row const logits = linear(x[t], c_.tied_embeddings ? "model.embed_tokens" : "lm_head");
      loss.logits.push_back(logits);
      if (targets[t] < 0) continue;
      double const maximum = *std::max_element(logits.begin(), logits.end());
      double sum = 0;
      for (double const z : logits) sum += std::exp(z - maximum);
      loss.tokens += maximum + std::log(sum) - logits[static_cast<std::size_t>(targets[t])];
    }
    return loss;
  }

 private:
  Row const& weight(std::string const& name) const { return w_.tensor.at(name + ".weight"); }
  Row table_row(std::string const& name, std::int32_t index) const {
    auto const width = static_cast<std::size_t>(c_.hidden_size);
    return part(weight(name), static_cast<std::size_t>(index) * width, width);
  }
  Row linear(Row const& x, std::string const& name) const {
    Row const& w = weight(name);
    Row y(w.size() / x.size());
    for (std::size_t o = 0; o < y.size(); ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    }
    return y;
  }
  Rows linear(Rows const& x, std::string const& name) const {
    Rows y;
    for (Row const& row : x) y.push_back(linear(row, name));
    return y;
  }
  Row norm(Row x, std::string const& name, double epsilon) const {
    Row const& gain = weight(name);
    double const scale = 1 / std::sqrt(dot(x, x) / static_cast<double>(x.size()) + epsilon);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * gain[i];
    return x;
  }
  Rows norm(Rows x, std::string const& name, double epsilon) const {
    for (Row& row : x) row = norm(row, name, epsilon);
    return x;
  }
  static void add(Rows& x, Rows const& y) {
    for (std::size_t t = 0; t < x.size(); ++t) x[t] += y[t];
  }

  static double mscale(double factor, double a) { return factor <= 1 ? 1 : 0.1 * a * std::log(factor) + 1; }
  /// Radians per position of pair j, with YaRN's ramp from kept to stretched frequencies.
  double frequency(int j) const {
    double const dim = c_.rope_dim();
    double const plain = std::pow(c_.rope_theta, -2 * j / dim);
    if (!yarn_) return plain;
    auto const& y = *c_.yarn;
    auto const pair_that_turns = [&](double turns) {
      return dim * std::log(static_cast<double>(y.original_positions) / (2 * std::numbers::pi * turns)) /
             (2 * std::log(c_.rope_theta));
    };
    double const low = std::max(std::floor(pair_that_turns(y.beta_fast)), 0.0);
    double high = std::min(std::ceil(pair_that_turns(y.beta_slow)), dim - 1);
    if (low == high) high += 0.001;
    double const ramp = std::clamp((j - low) / (high - low), 0.0, 1.0);
    return plain * (1 - ramp) + plain / y.factor * ramp;
  }
  Row rotate(Row x, std::size_t position) const {
    double multiplier = 1;
    if (yarn_) {
      auto const& y = *c_.yarn;
      multiplier = y.mscale != 0 && y.mscale_all_dim != 0
                       ? mscale(y.factor, y.mscale) / mscale(y.factor, y.mscale_all_dim)
                       : mscale(y.factor, 1);
    }
    std::size_t const half = x.size() / 2;
    for (std::size_t j = 0; j < half; ++j) {
      double const angle = static_cast<double>(position) * frequency(static_cast<int>(j));
      double& a = c_.latent_attention() ? x[2 * j] : x[j];
      double& b = c_.latent_attention() ? x[2 * j + 1] : x[j + half];
      double const turned = multiplier * (a * std::cos(angle) - b * std::sin(angle));
      b = multiplier * (a * std::sin(angle) + b * std::cos(angle));
      a = turned;
    }
    return x;
  }

  /// Causal attention of one head: the values of earlier positions, weighted.
  static Rows attend(Rows const& q, Rows const& k, Rows const& v, double scale) {
    Rows o;
    for (std::size_t t = 0; t < q.size(); ++t) {
      Row score;
      for (std::size_t s = 0; s <= t; ++s) score.push_back(scale * dot(q[t], k[s]));
      double const maximum = *std::max_element(score.begin(), score.end());
      double sum = 0;
      for (double& z : score) sum += z = std::exp(z - maximum);
      Row out(v[0].size());
      for (std::size_t s = 0; s <= t; ++s) out += (score[s] / sum) * v[s];
      o.push_back(out);
    }
    return o;
  }
  static Rows columns(Rows const& x, std::size_t begin, std::size_t count) {
    Rows y;
    for (Row const& row : x) y.push_back(part(row, begin, count));
    return y;
  }
  Rows rotate(Rows x) const {
    for (std::size_t t = 0; t < x.size(); ++t) x[t] = rotate(x[t], t);
    return x;
  }
  static void append(Rows& x, Rows const& y) {
    if (x.empty()) x.resize(y.size());
    for (std::size_t t = 0; t < y.size(); ++t) x[t].insert(x[t].end(), y[t].begin(), y[t].end());
  }

  Rows grouped_attention(std::string const& name, Rows const& u) const {
    auto const dim = static_cast<std::size_t>(c_.head_dim);
    Rows const q = linear(u, name + "q_proj"), k = linear(u, name + "k_proj"), v = linear(u, name + "v_proj");
    Rows o;
    for (std::size_t h = 0; h < static_cast<std::size_t>(c_.num_heads); ++h) {
      std::size_t const g = h / static_cast<std::size_t>(c_.num_heads / c_.num_kv_heads);
      append(o, attend(rotate(columns(q, h * dim, dim)), rotate(columns(k, g * dim, dim)), columns(v, g * dim, dim),
                       1 / std::sqrt(static_cast<double>(dim))));
    }
    return linear(o, name + "o_proj");
  }

  Rows latent_attention(std::string const& name, Rows const& u) const {
    auto const dn = static_cast<std::size_t>(c_.qk_nope_head_dim), dr = static_cast<std::size_t>(c_.qk_rope_head_dim);
    auto const dv = static_cast<std::size_t>(c_.v_head_dim), latent = static_cast<std::size_t>(c_.kv_lora_rank);
    Rows const q = c_.q_lora_rank > 0
                       ? linear(norm(linear(u, name + "q_a_proj"), name + "q_a_layernorm", 1e-6), name + "q_b_proj")
                       : linear(u, name + "q_proj");
    Rows const c = linear(u, name + "kv_a_proj_with_mqa");
    Rows const kv = linear(norm(columns(c, 0, latent), name + "kv_a_layernorm", 1e-6), name + "kv_b_proj");
    Rows const shared_key = rotate(columns(c, latent, dr));
    double scale = 1 / std::sqrt(static_cast<double>(dn + dr));
    if (yarn_ && c_.yarn->mscale_all_dim != 0) scale *= std::pow(mscale(c_.yarn->factor, c_.yarn->mscale_all_dim), 2);
    Rows o;
    for (std::size_t h = 0; h < static_cast<std::size_t>(c_.num_heads); ++h) {
      Rows query = columns(q, h * (dn + dr), dn), key = columns(kv, h * (dn + dv), dn);
      append(query, rotate(columns(q, h * (dn + dr) + dn, dr)));
      append(key, shared_key);
      append(o, attend(query, key, columns(kv, h * (dn + dv) + dn, dv), scale));
    }
    return linear(o, name + "o_proj");
  }

  Row gated_unit(std::string const& name, Row const& x) const {
    Row h = linear(x, name + "gate_proj");
    Row const up = linear(x, name + "up_proj");
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * up[i];
    return linear(h, name + "down_proj");
  }
  Rows gated_units(std::string const& name, Rows const& x) const {
    Rows y;
    for (Row const& row : x) y.push_back(gated_unit(name, row));
    return y;
  }

  /// Indices of the `count` largest, best first, lower index first among equals.
  static std::vector<int> best(Row const& score, int count) {
    std::vector<int> index(score.size());
    std::iota(index.begin(), index.end(), 0);
    std::stable_sort(index.begin(), index.end(), [&](int a, int b) {
      return score[static_cast<std::size_t>(a)] > score[static_cast<std::size_t>(b)];
    });
    index.resize(static_cast<std::size_t>(count));
    return index;
  }
  Row scores(Row logits) const {
    if (c_.router.scoring == kernels::Scoring::sigmoid) {
      for (double& z : logits) z = 1 / (1 + std::exp(-z));
      return logits;
    }
    double const maximum = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double& z : logits) sum += z = std::exp(z - maximum);
    return (1 / sum) * logits;
  }
  std::vector<int> choose(int layer, Row choice) const {
    auto const& r = c_.router;
    bool const v3 = r.method == kernels::TopkMethod::noaux_tc;
    if (v3) choice += w_.router_bias.at(layer);
    if (r.method == kernels::TopkMethod::greedy) return best(choice, r.top_k);
    auto const size = static_cast<std::size_t>(r.experts / r.num_groups);
    Row group_score;
    for (int g = 0; g < r.num_groups; ++g) {
      Row group = part(choice, static_cast<std::size_t>(g) * size, size);
      std::sort(group.rbegin(), group.rend());
      group_score.push_back(v3 ? group[0] + group[1] : group[0]);
    }
    Row masked(choice.size(), v3 ? -INFINITY : 0.0);
    for (int const g : best(group_score, r.top_groups)) {
      auto const begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(g) * size);
      std::copy_n(choice.begin() + begin, size, masked.begin() + begin);
    }
    return best(masked, r.top_k);
  }

  Rows experts(int layer, std::string const& name, Rows const& x, double& balance) const {
    auto const& r = c_.router;
    Rows score, y;
    std::vector<std::vector<int>> chosen;
    for (Row const& row : x) {
      score.push_back(scores(linear(row, name + "gate")));
      Row const& s = score.back();
      chosen.push_back(choose(layer, s));
      double sum = 1e-20, scale = r.scaling;
      for (int const e : chosen.back()) sum += s[static_cast<std::size_t>(e)];
      if (r.normalize_top_k) scale = r.scoring == kernels::Scoring::sigmoid ? r.scaling / sum : 1 / sum;
      Row out(row.size());
      for (int const e : chosen.back()) {
        out += (scale * s[static_cast<std::size_t>(e)]) * gated_unit(name + "experts." + std::to_string(e) + ".", row);
      }
      if (c_.num_shared_experts > 0) out += gated_unit(name + "shared_experts.", row);
      y.push_back(out);
    }
    balance += balance_loss(score, chosen);
    return y;
  }

  /// V2: expert, device and communication losses from the chosen experts. V3: the sequence-wise loss, from normalised
  /// scores and the best experts before bias and group limit.
  double balance_loss(Rows const& score, std::vector<std::vector<int>> chosen) const {
    auto const& r = c_.router;
    double const tokens = static_cast<double>(score.size());
    Row f(static_cast<std::size_t>(r.experts)), p(f.size());
    for (std::size_t t = 0; t < score.size(); ++t) {
      bool const v3 = r.scoring == kernels::Scoring::sigmoid;
      double const sum = v3 ? std::accumulate(score[t].begin(), score[t].end(), 0.0) : 1;
      p += (1 / (sum * tokens)) * score[t];
      if (v3) chosen[t] = best(score[t], r.top_k);
      for (int const e : chosen[t]) f[static_cast<std::size_t>(e)] += r.experts / (r.top_k * tokens);
    }
    int const devices = balance_.device_groups;
    auto const size = f.size() / static_cast<std::size_t>(devices);
    double loss = balance_.expert_alpha * dot(f, p);
    for (std::size_t g = 0; g < static_cast<std::size_t>(devices); ++g) {
      Row const f_g = part(f, g * size, size), p_g = part(p, g * size, size);
      double const p_sum = std::accumulate(p_g.begin(), p_g.end(), 0.0);
      double sent = 0;
      for (auto const& experts : chosen) {
        sent +=
            std::any_of(experts.begin(), experts.end(), [&](int e) { return static_cast<std::size_t>(e) / size == g; });
      }
      loss += balance_.device_alpha * std::accumulate(f_g.begin(), f_g.end(), 0.0) / static_cast<double>(size) * p_sum;
      loss += balance_.comm_alpha * devices / (balance_.max_devices * tokens) * sent * p_sum;
    }
    return loss;
  }

  ModelConfig const& c_;
  ModelWeights const& w_;
  bool yarn_;
  kernels::BalanceLoss balance_;
};

}  // namespace isotrain::reference
