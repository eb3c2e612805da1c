#include "lib/tensor/parameters.h"

#include <algorithm>
#include <set>

#include "lib/base/error.h"

namespace isotrain {

std::int64_t Parameter::size() const {
  std::int64_t elements = 1;
  for (auto const extent : shape) elements *= extent;
  return elements;
}

ParameterTable::ParameterTable(std::vector<Parameter> parameters) : parameters_(std::move(parameters)) {
  std::stable_partition(parameters_.begin(), parameters_.end(),
                        [](Parameter const& p) { return p.segment == Segment::matrix; });
  std::set<std::string> names;
  for (auto& parameter : parameters_) {
    expects(names.insert(parameter.name).second, "parameters with different names");
    parameter.offset = flat_size_;
    flat_size_ += (parameter.size() + block_elements - 1) / block_elements * block_elements;
    if (parameter.segment == Segment::matrix) matrix_size_ = flat_size_;
  }
}

Parameter const& ParameterTable::find(std::string const& name) const {
  auto const found =
      std::find_if(parameters_.begin(), parameters_.end(), [&](Parameter const& p) { return p.name == name; });
  if (found == parameters_.end()) throw Error("the model has no parameter '" + name + "'");
  return *found;
}

Parameter const& ParameterTable::at(std::int64_t offset) const {
  expects(!parameters_.empty() && offset >= 0 && offset < flat_size_, "an offset in the flat space");
  auto const after = std::upper_bound(parameters_.begin(), parameters_.end(), offset,
                                      [](std::int64_t x, Parameter const& p) { return x < p.offset; });
  return *(after - 1);
}

std::int64_t ParameterTable::num_parameters() const {
  std::int64_t elements = 0;
  for (auto const& parameter : parameters_) elements += parameter.size();
  return elements;
}

FlatRange flat_range(ParameterTable const& table, int ranks, int rank) {
  expects(ranks >= 1 && rank >= 0 && rank < ranks, "a rank below the number of ranks");
  std::int64_t const blocks = table.num_blocks();
  return {blocks * rank / ranks * block_elements, blocks * (rank + 1) / ranks * block_elements};
}

}  // namespace isotrain
