#include "lib/comm/tree_sum_run.h"

#include <algorithm>

namespace isotrain {
namespace {

/// Runs have tags of their own: one rank may be ahead in one run and behind in another. 32767 is the largest tag that
/// every MPI has, 0 is everybody else's.
int tag_of(std::uint64_t number) {
  return static_cast<int>(1 + number % 32767);
}

/// Piece `number` of the elements [begin, end); empty beyond the last.
IndexRange piece_of(std::int64_t begin, std::int64_t end, std::int64_t piece, std::int64_t number) {
  std::int64_t const start = std::min(end, begin + number * piece);
  return {start, std::min(end, start + piece)};
}

std::span<float> part(std::span<float> whole, IndexRange range) {
  return whole.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
}

}  // namespace

TreeReductionRun::TreeReductionRun(TreeReduction const& reduction, Cpu const& at,
                                   std::vector<std::span<float>> partials, std::span<float> chunk,
                                   std::span<float> workspace)
    : reduction_(reduction),
      at_(at),
      partials_(std::move(partials)),
      chunk_(chunk),
      workspace_(workspace),
      num_pieces_((reduction.count() + reduction.piece_ - 1) / reduction.piece_),
      sends_(*reduction.comm_),
      receives_{Messages(*reduction.comm_), Messages(*reduction.comm_)} {
  expects(static_cast<std::int64_t>(partials_.size()) == reduction.end_own() - reduction.first_own(),
          "one partial per subtree");
  for (auto const& partial : partials_) {
    expects(static_cast<std::int64_t>(partial.size()) == reduction.offsets_.back(), "partials of full length");
  }
  expects(static_cast<std::int64_t>(chunk.size()) == reduction.count(), "a chunk of this rank's length");
  expects(static_cast<std::int64_t>(workspace.size()) >= reduction.workspace_size(), "a workspace of workspace_size()");

  auto const noted = reduction.comm_->begin(Operation::tree_sum, element_of<float>(),
                                            static_cast<std::uint64_t>(reduction.offsets_.back()));
  number_ = reduction.comm_->num_collectives();
  post_sends();
}

/// All at once, so that the others need not wait for this rank to come back. MPI keeps a long message where it is until
/// the receiver asks for it.
void TreeReductionRun::post_sends() {
  auto const& r = reduction_;
  int const size = r.comm_->size();
  std::int64_t const longest = *std::max_element(r.counts_.begin(), r.counts_.end());
  for (std::int64_t number = 0; number * r.piece_ < longest; ++number) {
    for (int distance = 1; distance < size; ++distance) {
      int const to = (r.rank_ + distance) % size;
      IndexRange const range = piece_of(r.begin(to), r.end(to), r.piece_, number);
      for (auto const& partial : partials_) sends_.send(part(partial, range), to, tag_of(number_));
    }
  }
}

/// That piece of every partial, ascending.
std::vector<std::span<float>> TreeReductionRun::operands_of(std::int64_t piece) const {
  auto const& r = reduction_;
  IndexRange const range = piece_of(r.begin(r.rank_), r.end(r.rank_), r.piece_, piece);
  std::int64_t const slot = std::min(r.piece_, r.count());
  std::int64_t used = piece % 2 * r.num_remote() * slot;
  std::vector<std::span<float>> operands;
  for (std::int64_t p = 0; p < r.first_partial_.back(); ++p) {
    if (p >= r.first_own() && p < r.end_own()) {
      operands.push_back(part(partials_[static_cast<std::size_t>(p - r.first_own())], range));
    } else {
      operands.push_back(part(workspace_, {used, used + range.size()}));
      used += slot;
    }
  }
  return operands;
}

void TreeReductionRun::post_receives(std::int64_t piece) {
  auto const& r = reduction_;
  int const size = r.comm_->size();
  auto const operands = operands_of(piece);
  for (int distance = 1; distance < size; ++distance) {
    int const from = (r.rank_ + size - distance) % size;
    auto const f = static_cast<std::size_t>(from);
    for (std::int64_t p = r.first_partial_[f]; p < r.first_partial_[f + 1]; ++p) {
      receives_[static_cast<std::size_t>(piece % 2)].receive(operands[static_cast<std::size_t>(p)], from,
                                                             tag_of(number_));
    }
  }
}

void TreeReductionRun::add_up() {
  // The next piece travels meanwhile.
  if (piece_ + 1 < num_pieces_) post_receives(piece_ + 1);
  reduction_.add_piece(at_, operands_of(piece_),
                       part(chunk_, piece_of(0, reduction_.count(), reduction_.piece_, piece_)));
  piece_ += 1;
}

bool TreeReductionRun::progress() {
  if (piece_ < 0) {
    piece_ = 0;
    if (num_pieces_ > 0) post_receives(0);
  }
  while (piece_ < num_pieces_ && receives_[static_cast<std::size_t>(piece_ % 2)].test()) add_up();
  return piece_ == num_pieces_;
}

void TreeReductionRun::finish() {
  NamedOperations const named("tree_sum", static_cast<std::int64_t>(number_));
  while (!progress()) receives_[static_cast<std::size_t>(piece_ % 2)].wait();
  sends_.wait();
}

void TreeReductionQueue::start(TreeReduction const& reduction, Cpu const& at, std::vector<std::span<float>> partials,
                               std::span<float> chunk) {
  runs_.emplace_back(reduction, at, std::move(partials), chunk, workspace_);
}

bool TreeReductionQueue::progress() {
  while (first_ < runs_.size() && runs_[first_].progress()) ++first_;
  return first_ == runs_.size();
}

void TreeReductionQueue::finish() {
  for (auto& run : runs_) run.finish();
  runs_.clear();
  first_ = 0;
}

}  // namespace isotrain
