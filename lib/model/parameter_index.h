#pragma once

#include <string>
#include <unordered_map>

#include "lib/base/error.h"
#include "lib/tensor/parameters.h"

namespace isotrain {

/// Finds the parameters of a table by name in constant time: big models have tens of thousands. The table outlives it.
class ParameterIndex {
 public:
  explicit ParameterIndex(ParameterTable const& table) {
    for (auto const& parameter : table.all()) by_name_.emplace(parameter.name, &parameter);
  }
  bool contains(std::string const& name) const { return by_name_.contains(name); }
  Parameter const& operator[](std::string const& name) const {
    auto const found = by_name_.find(name);
    expects(found != by_name_.end(), "a parameter that the table has");
    return *found->second;
  }

 private:
  std::unordered_map<std::string, Parameter const*> by_name_;
};

}  // namespace isotrain
