#include "lib/comm/operation.h"

#include <gtest/gtest.h>

#include <string>

namespace isotrain::test {
namespace {

OperationFacts sample() {
  return {.number = 4,
          .count = 8,
          .group = ShortName("world"),
          .group_size = 2,
          .element = element_of<std::uint64_t>(),
          .operation = Operation::all_gather};
}

TEST(Operation, HasATextThatSaysAll) {
  auto facts = sample();
  EXPECT_EQ(describe(facts), "all_gather 4 of world (8 x u64)");
  facts.name = ShortName("losses");
  EXPECT_EQ(describe(facts), "all_gather 4 of world (8 x u64, \"losses\")");
  facts = sample();
  facts.group = {};
  facts.operation = Operation::barrier;
  EXPECT_EQ(describe(facts), "barrier 4 of a group of 2");
  facts = sample();
  facts.operation = Operation::broadcast;
  facts.element = element_of<char[24]>();
  facts.peer = 1;
  EXPECT_EQ(describe(facts), "broadcast 4 of world (8 x elements of 24 bytes, from rank 1 of it)");
  facts.operation = Operation::send;
  facts.number = 0;
  facts.element = {};
  EXPECT_EQ(describe(facts), "send of world (8 x bytes, to rank 1 of it)");
  facts.operation = Operation::wait;
  facts.count = 1;
  EXPECT_EQ(describe(facts), "wait of world (1 message, the first with rank 1 of it)");
}

TEST(Operation, ElementsAreTold) {
  auto facts = sample();
  facts.element = element_of<float>();
  EXPECT_NE(describe(facts).find("f32"), std::string::npos);
  facts.element = element_of<std::int32_t>();
  EXPECT_NE(describe(facts).find("i32"), std::string::npos);
}

TEST(Operation, EachHasAName) {
  for (auto operation = Operation::barrier; operation <= Operation::wait;
       operation = static_cast<Operation>(static_cast<int>(operation) + 1)) {
    EXPECT_STRNE(name_of(operation), "unknown operation");
  }
}

TEST(ShortName, IsCut) {
  EXPECT_EQ(ShortName("world").view(), "world");
  EXPECT_EQ(ShortName("abcdefghijklmnopqrstuvwxyz").view(), "abcdefghijklmnopqrstuvwxy");
  EXPECT_EQ(ShortName("").view(), "");
  EXPECT_EQ(ShortName("a"), ShortName(std::string("a")));
  EXPECT_NE(ShortName("a"), ShortName("b"));
}

TEST(Signature, TellsApartAllThatMustBeTheSame) {
  auto const facts = sample();
  std::uint64_t const hash = mix_signature(7, facts);
  EXPECT_EQ(mix_signature(7, sample()), hash);
  EXPECT_NE(mix_signature(8, facts), hash);
  auto const differs = [&](auto change) {
    auto other = sample();
    change(other);
    return mix_signature(7, other) != hash;
  };
  EXPECT_TRUE(differs([](OperationFacts& f) { f.operation = Operation::sum; }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.count = 9; }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.parts = 1; }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.peer = 0; }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.name = ShortName("x"); }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.element = element_of<double>(); }));
  EXPECT_TRUE(differs([](OperationFacts& f) { f.element = element_of<std::int64_t>(); }));
}

TEST(Signature, LeavesOutWhatMayDiffer) {
  auto facts = sample();
  facts.operation = Operation::all_to_all;
  std::uint64_t const hash = mix_signature(7, facts);
  facts.count = 9;
  EXPECT_EQ(mix_signature(7, facts), hash);
}

TEST(NamedOperations, NestAndComeBack) {
  EXPECT_EQ(NamedOperations::current().view(), "");
  {
    NamedOperations const outer("gradients", 12);
    EXPECT_EQ(NamedOperations::current().view(), "gradients 12");
    {
      NamedOperations const inner("losses");
      EXPECT_EQ(NamedOperations::current().view(), "losses");
    }
    EXPECT_EQ(NamedOperations::current().view(), "gradients 12");
    NamedOperations const longer(std::string(100, 'x'), -5);
    EXPECT_EQ(NamedOperations::current().view(), std::string(25, 'x'));
  }
  EXPECT_EQ(NamedOperations::current().view(), "");
}

}  // namespace
}  // namespace isotrain::test
