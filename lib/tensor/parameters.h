#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace isotrain {

/// Parameters lie in one flat fp32 space, each starting at a multiple of this many elements, the gaps filled with
/// zeros. Gradient norms are sums over such blocks, and ranks own whole blocks.
inline constexpr std::int64_t block_elements = 4096;

/// What the model computes with: matrices in its precision (fp32 or bf16), the rest (norm gains, router) always in
/// fp32.
enum class Segment { matrix, fp32 };

/// How a parameter starts: normal numbers of the run's standard deviation, keyed by (seed, name, element), or all ones.
enum class Initial { normal, ones };

/// One logical (unsharded) tensor of the model.
struct Parameter {
  std::string name;                 // as in Hugging Face checkpoints: "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // [out, in] or [width]
  Segment segment = Segment::matrix;
  Initial initial = Initial::normal;
  bool decay = true;        // weight decay applies
  std::int64_t offset = 0;  // first element in the flat space; set by ParameterTable

  std::int64_t size() const;
};

/// All parameters in canonical order: matrices first, then the fp32 ones, each as the model lists them. The order, and
/// so every offset, depends on the model alone.
class ParameterTable {
 public:
  /// Throws std::logic_error if two parameters have one name.
  explicit ParameterTable(std::vector<Parameter> parameters);

  std::vector<Parameter> const& all() const { return parameters_; }
  /// Throws Error naming the parameter if there is none.
  Parameter const& find(std::string const& name) const;
  /// The parameter that owns flat element `offset`, or the one before the gap it lies in.
  Parameter const& at(std::int64_t offset) const;

  std::int64_t num_parameters() const;                       // elements without gaps
  std::int64_t flat_size() const { return flat_size_; }      // elements with gaps
  std::int64_t matrix_size() const { return matrix_size_; }  // the matrices' part of flat_size
  std::int64_t num_blocks() const { return flat_size_ / block_elements; }

 private:
  std::vector<Parameter> parameters_;
  std::int64_t flat_size_ = 0;
  std::int64_t matrix_size_ = 0;
};

/// A run [begin, end) of the flat space, whole blocks.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
};

/// The part of the flat space that rank `rank` of `ranks` updates and writes to checkpoints: even to one block,
/// ascending.
FlatRange flat_range(ParameterTable const& table, int ranks, int rank);

/// The weights that a model computes with. Owns nothing.
template <class T>
struct Weights {
  T const* matrices = nullptr;  // (matrix_size)
  float const* fp32 = nullptr;  // (flat_size - matrix_size)
  std::int64_t matrix_size = 0;

  T const* matrix(Parameter const& p) const { return matrices + p.offset; }
  float const* vector(Parameter const& p) const { return fp32 + (p.offset - matrix_size); }
};

}  // namespace isotrain
