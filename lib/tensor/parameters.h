#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lib/base/tree.h"

namespace isotrain {

/// Dense pieces of parameters lie in one flat fp32 space, each starting at a multiple of this many elements, the gaps
/// filled with zeros. Gradient norms are sums over such blocks, and ranks own whole blocks.
inline constexpr std::int64_t block_elements = 4096;

/// What the model computes with: matrices in its precision (fp32 or bf16), the rest (norm gains, router) always in
/// fp32.
enum class Segment { matrix, fp32 };

/// How a parameter starts: normal numbers of the run's standard deviation, keyed by (seed, name, element), or all ones.
enum class Initial { normal, ones };

/// The dimension that tensor parallelism cuts into slices.
enum class Cut { none, rows, columns };

/// Parts of the flat space, in this order. Parameters of one region are shared out over ranks alike: slices over tensor
/// ranks; experts over tensor and expert ranks; the others are held by all ranks of a stage.
enum class Region { sliced, experts, replicated, fp32 };
inline constexpr int num_regions = 4;

/// One logical (unsharded) tensor of the model.
struct Parameter {
  std::string name;                 // as in Hugging Face checkpoints: "model.layers.0.self_attn.q_proj.weight"
  std::vector<std::int64_t> shape;  // [out, in] or [width]
  Segment segment = Segment::matrix;
  Initial initial = Initial::normal;
  bool decay = true;  // weight decay applies
  Cut cut = Cut::none;
  int layer = 0;    // decoder layer; -1: before the first (embedding); number of layers: after the last (norm, head)
  int expert = -1;  // routed expert it belongs to

  Region region() const;
  std::int64_t rows() const { return shape[0]; }
  std::int64_t columns() const { return shape.size() > 1 ? shape[1] : 1; }
  std::int64_t size() const { return rows() * columns(); }
};

/// A parameter, or one slice of it, dense and row-major in the flat space. Slice s of n rows or columns has
/// [s c, min((s + 1) c, n)) of them, c = ceil(n / slices).
struct Piece {
  std::size_t parameter = 0;      // index in ParameterTable::all()
  int slice = 0;                  // 0 where nothing is cut
  std::int64_t first_row = 0;     // in the parameter
  std::int64_t first_column = 0;  // in the parameter
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t offset = 0;  // first element in the flat space

  std::int64_t size() const { return rows * columns; }
  std::int64_t end() const { return offset + (size() + block_elements - 1) / block_elements * block_elements; }
};

/// All parameters and where their pieces lie: by region, in each as the model lists them, slices ascending. The order,
/// and so every offset, depends on the model and the number of slices alone.
class ParameterTable {
 public:
  /// Throws std::logic_error if two parameters have one name.
  ParameterTable(std::vector<Parameter> parameters, int slices);

  std::vector<Parameter> const& all() const { return parameters_; }
  std::vector<Piece> const& pieces() const { return pieces_; }
  int slices() const { return slices_; }
  /// Throws Error naming the parameter if there is none.
  Parameter const& find(std::string const& name) const;
  std::span<Piece const> pieces_of(Parameter const& parameter) const;
  /// The piece that owns flat element `offset`, or the one before the gap it lies in.
  Piece const& at(std::int64_t offset) const;
  Parameter const& parameter(Piece const& piece) const { return parameters_[piece.parameter]; }

  std::int64_t num_parameters() const;                       // elements without gaps
  std::int64_t flat_size() const { return flat_size_; }      // elements with gaps
  std::int64_t matrix_size() const { return matrix_size_; }  // the matrices' part of flat_size
  std::int64_t num_blocks() const { return flat_size_ / block_elements; }

 private:
  std::vector<Parameter> parameters_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> first_piece_;  // of each parameter; one more at the end
  int slices_;
  std::int64_t flat_size_ = 0;
  std::int64_t matrix_size_ = 0;
};

/// A run [begin, end) of the flat space, whole blocks.
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(FlatRange const&) const = default;
};

/// The element of the unsharded parameter, row-major, that a piece has at `offset` of the flat space.
std::int64_t element_of(Parameter const& parameter, Piece const& piece, std::int64_t offset);

/// Calls body(offset, element, count) for the longest runs that are contiguous in the flat space and in the unsharded
/// parameter, as far as they lie in `range`, ascending: `offset` in the flat space, `element` of the parameter.
void for_each_run(Parameter const& parameter, Piece const& piece, FlatRange range,
                  std::function<void(std::int64_t offset, std::int64_t element, std::int64_t count)> const& body);

/// The weights that a model computes with: of the matrices' part of a space, and of the fp32 part. Owns nothing.
template <class T>
struct Weights {
  T const* matrices = nullptr;  // (matrix_size)
  float const* fp32 = nullptr;  // (flat_size - matrix_size)
  std::int64_t matrix_size = 0;

  T const* matrix(std::int64_t offset) const { return matrices + offset; }
  float const* vector(std::int64_t offset) const { return fp32 + (offset - matrix_size); }
};

}  // namespace isotrain
