#pragma once

#include <span>
#include <string>
#include <vector>

#include "lib/base/tree.h"

namespace isotrain {

/// The layers of each chunk of a pipeline, in model order: consecutive ranges that together are [0, n), none empty.
///
///   layer_costs     (n) time of each layer, in any unit, finite and not negative
///   embedding_cost  counts to the first chunk
///   head_cost       counts to the last chunk
///
/// The largest cost of a chunk is as small as it can be; among such cuts the smallest is as large as it can be; then
/// the earlier chunks get fewer layers, since early stages hold more micro-batches. The same arguments give the same
/// cut. Throws UsageError if there are more chunks than layers. Takes time of order n^2 * chunks.
std::vector<IndexRange> assign_layers(std::span<double const> layer_costs, double embedding_cost, double head_cost,
                                      int num_chunks);

/// A cut given as the number of layers of each chunk, "3,3,2". Throws UsageError saying what is wrong: not such a list,
/// a chunk without layers, another number of chunks or of layers.
std::vector<IndexRange> parse_layer_cut(std::string const& text, int num_layers, int num_chunks);

}  // namespace isotrain
