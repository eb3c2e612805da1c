#pragma once

#include <compare>
#include <cstdint>

/// Degrees of parallelism and who is where, without any communication. Nothing else multiplies degrees.
namespace isotrain {

/// How many parts each axis is cut into. tensor * pipeline * data is the number of ranks; expert cuts the data ranks
/// once more, so it divides data.
struct Degrees {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  int expert = 1;

  int ranks() const { return tensor * pipeline * data; }
  /// Data ranks that hold the same experts: data / expert.
  int expert_data() const { return data / expert; }
  bool operator==(Degrees const&) const = default;
};

/// A rank among all ranks; ranks inside a group of a mesh are plain ints, named by their axis.
struct WorldRank {
  int value = 0;
  auto operator<=>(WorldRank const&) const = default;
};

/// Where a rank stands on each axis. Tensor ranks are neighbours, so that they share a node; then data ranks, then
/// pipeline stages:
///
///   world rank = (pipeline * degrees.data + data) * degrees.tensor + tensor
///   data       = expert_data * degrees.expert + expert
struct MeshCoordinates {
  int tensor = 0;
  int pipeline = 0;
  int data = 0;
  int expert = 0;
  int expert_data = 0;

  bool operator==(MeshCoordinates const&) const = default;
};

/// Require a rank of the mesh, or coordinates in it whose data, expert and expert_data fit together.
MeshCoordinates coordinates(Degrees const& degrees, WorldRank rank);
WorldRank world_rank(Degrees const& degrees, MeshCoordinates const& at);

/// What the model and the envelope let be cut.
struct DegreeLimits {
  std::int64_t slices = 1;          // --repro.slices; tensor divides it
  std::int64_t lanes = 1;           // --repro.lanes; data is at most as many
  std::int64_t experts = 0;         // routed experts of a layer; 0: dense
  std::int64_t layers = 1;          // at least one for each virtual stage
  std::int64_t virtual_stages = 1;  // of a pipeline rank
};

/// What is run on `ranks` ranks where `asked` (with data 0: as many as are left) was asked for. Throws UsageError if
/// the degrees do not multiply to the number of ranks (naming the nearest that would), tensor does not divide the
/// slices, data is above the lanes, there are more virtual stages than layers, or the experts cannot be shared out:
/// expert must divide data and the experts, and each of the tensor * expert ranks that share the experts needs one.
/// Requires degrees of at least 1 (data: 0) and ranks >= 1.
Degrees resolve_degrees(Degrees const& asked, int ranks, DegreeLimits const& limits);

}  // namespace isotrain
