// The executor with chunks that are small sums: what leaves the pipeline is what one rank would compute, for every kind
// of schedule and number of stages, with micro-batches of unequal size.
#include "lib/train/pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "lib/comm/communicator.h"
#include "lib/parallel/schedule_slots.h"

namespace isotrain::test {
namespace {

constexpr std::int64_t width = 3;

/// Micro-batches have 2, 0, 1, 2, 0, 1, ... rows.
std::int64_t rows_of(int micro_batch) {
  return (2 * micro_batch + 2) % 3;
}

/// A chunk adds its number + 1 to what it reads, forwards and backwards; the last one hands the sum back, times 10.
class FakeChunk {
 public:
  FakeChunk(ScheduleSpec const& spec, int number, int slots, bool is_slow)
      : spec_(spec), number_(number), slots_(slots), is_slow_(is_slow) {
    for (auto* buffers : {&inputs_, &outputs_, &gradients_}) {
      buffers->assign(static_cast<std::size_t>(slots), std::vector<float>(2 * width, -1));
    }
  }

  PipelineChunk<float> functions() {
    PipelineChunk<float> chunk;
    chunk.number = number_;
    chunk.slots = slots_;
    chunk.forward = [this](int m) { forward(m); };
    chunk.backward_input = [this](int m) { backward_input(m); };
    chunk.backward_weight = [this](int m) { log_.push_back({'w', m}); };
    chunk.input = [this](int m) { return view(inputs_, m); };
    chunk.output = [this](int m) { return view(outputs_, m); };
    chunk.stream_gradient = [this](int m) { return view(gradients_, m); };
    return chunk;
  }

  /// What was done for which micro-batch.
  std::vector<std::pair<char, int>> const& log() const { return log_; }
  /// All values, in the order of the micro-batches: what left the last chunk, and the gradient that left the first.
  std::vector<float> results, input_gradients;

 private:
  bool is_last() const { return number_ == spec_.num_chunks() - 1; }
  Matrix<float> view(std::vector<std::vector<float>>& buffers, int m) const {
    return {buffers[static_cast<std::size_t>(m % slots_)].data(), rows_of(m), width};
  }
  void wait() const {
    if (is_slow_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void forward(int m) {
    wait();
    log_.push_back({'f', m});
    auto const in = view(inputs_, m), out = view(outputs_, m);
    for (std::int64_t i = 0; i < in.rows * width; ++i) {
      if (number_ == 0) in.data[i] = static_cast<float>(100 * m + i);
      out.data[i] = in.data[i] + static_cast<float>(number_ + 1);
      if (is_last()) results.push_back(out.data[i]);
    }
  }
  void backward_input(int m) {
    wait();
    log_.push_back({'b', m});
    auto const gradient = view(gradients_, m), out = view(outputs_, m);
    for (std::int64_t i = 0; i < gradient.rows * width; ++i) {
      if (is_last()) gradient.data[i] = 10 * out.data[i];
      gradient.data[i] += static_cast<float>(number_ + 1);
      if (number_ == 0) input_gradients.push_back(gradient.data[i]);
    }
  }

  ScheduleSpec spec_;
  int number_;
  int slots_;
  bool is_slow_;
  std::vector<std::vector<float>> inputs_, outputs_, gradients_;
  std::vector<std::pair<char, int>> log_;
};

struct Kind {
  ScheduleKind kind;
  int virtual_stages;
};

class PipelineTest : public testing::TestWithParam<Kind> {
 protected:
  ScheduleSpec spec(int micro_batches) const {
    return {GetParam().kind, world_.size(), GetParam().virtual_stages, micro_batches};
  }
  /// Runs `items` on chunks of this rank with the slots that the schedule of `spec` needs, or fewer; the rank `slow` is
  /// slower than the others.
  void run(ScheduleSpec const& spec, std::vector<ScheduleItem> const& items, int slow = -1, int fewer_slots = 0) {
    auto const planned = make_schedule(spec, world_.rank());
    chunks_.clear();
    auto const numbers = chunks_of_stage(spec, world_.rank());
    chunks_.reserve(numbers.size());
    std::vector<PipelineChunk<float>> functions;
    for (int const number : numbers) {
      chunks_.emplace_back(spec, number, num_slots(planned, number) - fewer_slots, world_.rank() == slow);
      functions.push_back(chunks_.back().functions());
    }
    PipelineExecutor<float>(world_, std::move(functions)).run(spec, items);
  }
  /// Whoever has the first or the last chunk checks what left it.
  void expect_values(ScheduleSpec const& spec, bool with_gradients) const {
    float const added = static_cast<float>(spec.num_chunks() * (spec.num_chunks() + 1)) / 2;
    std::vector<float> results, gradients;
    for (int m = 0; m < spec.micro_batches; ++m) {
      for (std::int64_t i = 0; i < rows_of(m) * width; ++i) {
        results.push_back(static_cast<float>(100 * m + i) + added);
        gradients.push_back(10 * results.back() + added);
      }
    }
    auto const numbers = chunks_of_stage(spec, world_.rank());
    for (std::size_t c = 0; c < numbers.size(); ++c) {
      if (numbers[c] == spec.num_chunks() - 1) {
        EXPECT_EQ(chunks_[c].results, results);
      }
      if (numbers[c] == 0 && with_gradients) {
        EXPECT_EQ(chunks_[c].input_gradients, gradients);
      }
    }
  }

  Communicator const world_ = Communicator::duplicate(MPI_COMM_WORLD);
  std::vector<FakeChunk> chunks_;
};

TEST_P(PipelineTest, MovesValuesAndGradients) {
  for (int const micro_batches : {1, 2, 3, 8, 13}) {
    SCOPED_TRACE(std::to_string(micro_batches) + " micro-batches");
    auto const spec = this->spec(micro_batches);
    run(spec, make_schedule(spec, world_.rank()));
    expect_values(spec, true);
    for (auto const& chunk : chunks_) {
      // Each of the three once for every micro-batch, in order.
      for (char const what : {'f', 'b', 'w'}) {
        std::vector<int> order, ascending;
        for (auto const& [done, m] : chunk.log()) {
          if (done == what) order.push_back(m);
        }
        for (int m = 0; m < micro_batches; ++m) ascending.push_back(m);
        EXPECT_EQ(order, ascending) << what;
      }
    }
  }
}

TEST_P(PipelineTest, WaitsForSlowRanks) {
  auto const spec = this->spec(9);
  for (int slow = 0; slow < world_.size(); ++slow) {
    run(spec, make_schedule(spec, world_.rank()), slow);
    expect_values(spec, true);
  }
}

TEST_P(PipelineTest, RunsForwardPassesOnly) {
  for (int const micro_batches : {0, 1, 7}) {
    auto spec = this->spec(1);
    auto const items = forward_items(spec, world_.rank(), micro_batches);
    run(spec, items);
    spec.micro_batches = micro_batches;
    expect_values(spec, false);
  }
}

/// The check of values can tell: with memory for one micro-batch less, the first one's activations are overwritten.
class FullPipelineTest : public PipelineTest {};
TEST_P(FullPipelineTest, NegativeControl) {
  auto const spec = this->spec(8);
  auto const items = make_schedule(spec, world_.rank());
  run(spec, items);
  auto const expected = chunks_.front().input_gradients;
  run(spec, items, -1, 1);
  if (world_.rank() == 0) {
    EXPECT_NE(chunks_.front().input_gradients, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Gpipe, FullPipelineTest, testing::Values(Kind{ScheduleKind::gpipe, 1}));
INSTANTIATE_TEST_SUITE_P(All, PipelineTest,
                         testing::Values(Kind{ScheduleKind::gpipe, 1}, Kind{ScheduleKind::one_f_one_b, 1},
                                         Kind{ScheduleKind::interleaved, 1}, Kind{ScheduleKind::interleaved, 2},
                                         Kind{ScheduleKind::interleaved, 3}, Kind{ScheduleKind::zero_bubble, 1},
                                         Kind{ScheduleKind::dualpipe_v, 2}),
                         [](auto const& info) {
                           std::string name = name_of(info.param.kind) + std::to_string(info.param.virtual_stages);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace isotrain::test
