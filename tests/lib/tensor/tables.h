#pragma once

#include <vector>

#include "lib/tensor/parameters.h"

/// Parameters of every region and cut, none in the order of the flat space.
namespace isotrain::test {

/// 11 rows or columns do not divide into 4 slices; 9 leave the last of 4 empty; "tall" and "wide" are larger than a
/// block.
inline std::vector<Parameter> mixed_parameters() {
  auto const experts = [](std::string const& name, std::vector<std::int64_t> shape, Cut cut, int expert) {
    return Parameter{.name = name, .shape = std::move(shape), .cut = cut, .layer = 1, .expert = expert};
  };
  return {
      {.name = "gain", .shape = {5}, .segment = Segment::fp32, .initial = Initial::ones, .decay = false},
      {.name = "head", .shape = {11, 700}, .cut = Cut::rows, .layer = 2},
      {.name = "whole", .shape = {3, 5}, .layer = 1},
      experts("expert.1.up", {9, 2}, Cut::rows, 1),
      experts("expert.0.down", {2, 9}, Cut::columns, 0),
      {.name = "wide", .shape = {500, 11}, .cut = Cut::columns, .layer = 0},
      {.name = "router", .shape = {3, 2000}, .segment = Segment::fp32, .layer = 1},
      {.name = "tall", .shape = {4096, 2}, .layer = 0},
      {.name = "embedding", .shape = {11, 3}, .cut = Cut::rows, .layer = -1},
  };
}

inline std::vector<std::string> const mixed_order = {"head",  "wide", "embedding", "expert.1.up", "expert.0.down",
                                                     "whole", "tall", "gain",      "router"};

}  // namespace isotrain::test
