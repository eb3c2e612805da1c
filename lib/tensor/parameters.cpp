#include "lib/tensor/parameters.h"

#include <algorithm>
#include <set>

#include "lib/base/error.h"

namespace isotrain {

Region Parameter::region() const {
  if (segment == Segment::fp32) return Region::fp32;
  if (expert >= 0) return Region::experts;
  return cut == Cut::none ? Region::replicated : Region::sliced;
}

ParameterTable::ParameterTable(std::vector<Parameter> parameters, int slices)
    : parameters_(std::move(parameters)), slices_(slices) {
  expects(slices >= 1, "at least one slice");
  std::stable_sort(parameters_.begin(), parameters_.end(),
                   [](Parameter const& a, Parameter const& b) { return a.region() < b.region(); });
  std::set<std::string> names;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    Parameter const& parameter = parameters_[i];
    expects(names.insert(parameter.name).second, "parameters with different names");
    first_piece_.push_back(pieces_.size());
    std::int64_t const extent = parameter.cut == Cut::columns ? parameter.columns() : parameter.rows();
    std::int64_t const length = parameter.cut == Cut::none ? extent : (extent + slices - 1) / slices;
    for (int slice = 0; slice < (parameter.cut == Cut::none ? 1 : slices); ++slice) {
      std::int64_t const begin = std::min(extent, slice * length), end = std::min(extent, begin + length);
      Piece piece{.parameter = i, .slice = slice, .offset = flat_size_};
      bool const columns = parameter.cut == Cut::columns;
      (columns ? piece.first_column : piece.first_row) = begin;
      piece.rows = columns ? parameter.rows() : end - begin;
      piece.columns = columns ? end - begin : parameter.columns();
      flat_size_ = piece.end();
      pieces_.push_back(piece);
    }
    if (parameter.segment == Segment::matrix) matrix_size_ = flat_size_;
  }
  first_piece_.push_back(pieces_.size());
}

Parameter const& ParameterTable::find(std::string const& name) const {
  auto const found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](Parameter const& p) { return p.name == name; });
  if (found == parameters_.end()) throw Error("the model has no parameter '" + name + "'");
  return *found;
}

std::span<Piece const> ParameterTable::pieces_of(Parameter const& parameter) const {
  auto const index = static_cast<std::size_t>(&parameter - parameters_.data());
  expects(index < parameters_.size(), "a parameter of this table");
  return std::span(pieces_).subspan(first_piece_[index], first_piece_[index + 1] - first_piece_[index]);
}

Piece const& ParameterTable::at(std::int64_t offset) const {
  expects(!pieces_.empty() && offset >= 0 && offset < flat_size_, "an offset in the flat space");
  auto const after = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                      [](std::int64_t x, Piece const& p) { return x < p.offset; });
  return *(after - 1);
}

std::int64_t ParameterTable::num_parameters() const {
  std::int64_t elements = 0;
  for (auto const& parameter : parameters_) elements += parameter.size();
  return elements;
}

std::int64_t element_of(Parameter const& parameter, Piece const& piece, std::int64_t offset) {
  std::int64_t const inside = offset - piece.offset;
  std::int64_t const row = piece.first_row + inside / piece.columns;
  return row * parameter.columns() + piece.first_column + inside % piece.columns;
}

void for_each_run(Parameter const& parameter, Piece const& piece, FlatRange range,
                  std::function<void(std::int64_t, std::int64_t, std::int64_t)> const& body) {
  std::int64_t const begin = std::max(range.begin, piece.offset);
  std::int64_t const end = std::min(range.end, piece.offset + piece.size());
  // Whole rows follow each other in both.
  std::int64_t const run = piece.columns == parameter.columns() ? piece.size() : piece.columns;
  for (std::int64_t offset = begin; offset < end;) {
    std::int64_t const inside = offset - piece.offset;
    std::int64_t const count = std::min(end - offset, run - inside % run);
    body(offset, element_of(parameter, piece, offset), count);
    offset += count;
  }
}

}  // namespace isotrain
