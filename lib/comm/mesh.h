#pragma once

#include <span>
#include <string>

#include "lib/comm/communicator.h"
#include "lib/comm/degrees.h"

namespace isotrain {

/// The ranks of a run on their axes, with a communicator for each group that this rank belongs to. Ranks in a group
/// ascend with the axis that gives the group its name.
class Mesh {
 public:
  /// Collective over `world`, which outlives the mesh. Requires as many ranks as the degrees multiply to, degrees that
  /// are the same on all ranks, and degrees.expert that divides degrees.data. Throws Error when MPI says no.
  Mesh(Communicator const& world, Degrees const& degrees);
  Mesh(Mesh const&) = delete;
  Mesh& operator=(Mesh const&) = delete;

  Degrees const& degrees() const { return degrees_; }
  MeshCoordinates const& coordinates() const { return at_; }
  Communicator const& world() const { return *world_; }

  /// Same stage and data: they share each layer's slices. Rank: tensor.
  Communicator const& tensor() const { return tensor_; }
  /// Same tensor and stage: they share the lanes. Rank: data.
  Communicator const& data() const { return data_; }
  /// Same tensor and data: they share the layers. Rank: pipeline stage.
  Communicator const& pipeline() const { return pipeline_; }
  /// Same stage and expert_data: the tensor * expert ranks that share out the routed experts, each tensor rank a part
  /// of its own. Rank: expert * degrees.tensor + tensor.
  Communicator const& expert() const { return expert_; }
  /// Same tensor, stage and expert: they hold the same experts. Rank: expert_data.
  Communicator const& expert_data() const { return expert_data_; }
  /// Same stage: all tensor and data ranks. Rank: tensor * degrees.data + data.
  Communicator const& stage() const { return stage_; }

  /// Collective. Communicator::check_signature of the world and of each group.
  void check_signatures() const;

 private:
  Communicator const* world_;
  Degrees degrees_;
  MeshCoordinates at_;
  Communicator tensor_;
  Communicator data_;
  Communicator pipeline_;
  Communicator expert_;
  Communicator expert_data_;
  Communicator stage_;
};

/// Who is where, a line a rank, `hosts` by world rank; of many ranks the first and the last.
std::string mesh_table(Degrees const& degrees, std::span<std::string const> hosts);

}  // namespace isotrain
