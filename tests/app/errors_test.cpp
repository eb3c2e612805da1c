// What wrong settings, models and corpora get: one message on all ranks together, the right exit code, and nothing
// written.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/app/expect_error.h"
#include "tests/app/tiny_run.h"

namespace isotrain::test {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

struct Wrong {
  int ranks;  // 0: started alone
  Words arguments;
  int exit_code;
  Words fragments;  // of the message
};

std::string replaced(std::string text, std::string const& what, std::string const& by) {
  auto const at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

class Errors : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    world_ = new TinyWorld;
    expect_success(run(mpirun(3, world_->train("llama", "run"))));
    std::string const subword = *world_ / "subwords";
    auto const prepared =
        run(isotrain({"prepare", *world_ / "text.txt", "--documents", "paragraphs", "--tokenizer", "sentencepiece:300",
                      "--validation", "0.1", "--shards", "8", "--out", subword}));
    ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  }
  static void TearDownTestSuite() { delete world_; }

  static ProgramResult started(int ranks, Words const& arguments) {
    return run(ranks == 0 ? isotrain(arguments) : mpirun(ranks, arguments));
  }

  /// Each is refused with its message, and before anything is written.
  static void expect_refused(std::vector<Wrong> const& cases, std::string const& model = "llama") {
    for (auto const& wrong : cases) {
      SCOPED_TRACE(testing::PrintToString(wrong.arguments));
      expect_one_error(started(wrong.ranks, world_->train(model, "refused", wrong.arguments)), wrong.exit_code,
                       wrong.fragments);
      EXPECT_FALSE(fs::exists(*world_ / "refused"));
    }
  }
  static void expect_errors(std::vector<Wrong> const& cases) {
    for (auto const& wrong : cases) {
      SCOPED_TRACE(testing::PrintToString(wrong.arguments));
      expect_one_error(started(wrong.ranks, wrong.arguments), wrong.exit_code, wrong.fragments);
    }
  }

  /// A config.json that differs from that of `model`, written as `name`.json.
  static std::string model(std::string const& name, std::string const& from, std::vector<std::string> const& changes) {
    std::string text = read_file(*world_ / (from + ".json"));
    for (std::size_t i = 0; i + 1 < changes.size(); i += 2) text = replaced(text, changes[i], changes[i + 1]);
    write_file(*world_ / (name + ".json"), text);
    return name;
  }

  /// A copy of the corpus to be damaged.
  static fs::path corpus(std::string const& name) {
    fs::copy(*world_ / "corpus", *world_ / name, fs::copy_options::recursive);
    return *world_ / name;
  }

  static TinyWorld* world_;
};
TinyWorld* Errors::world_ = nullptr;

TEST_F(Errors, OfSettings) {
  expect_refused({
      {3, {"--train.step", "9"}, 2, {"unknown setting '--train.step'", "did you mean '--train.steps'?"}},
      {0, {"--optim.lr"}, 2, {"--optim.lr", "has no value"}},
      {0, {"--optim.lr", "fast"}, 2, {"'fast' for --optim.lr", "must be a number"}},
      {0, {"--optim.lr", "nan"}, 2, {"--optim.lr", "must be finite"}},
      {0, {"--optim.schedule", "cosin"}, 2, {"--optim.schedule", "must be one of", "did you mean 'cosine'?"}},
      {0, {"--train.seed", "1", "--train.seed", "2"}, 2, {"--train.seed", "given twice", "'1', then '2'"}},
      {0, {"--train.steps", "0"}, 2, {"--train.steps", "must be from 1 to"}},
      {0, {"--train.steps", "9000000000000000000"}, 2, {"--train.steps", "must be from 1 to"}},
      {0, {"--train.global_batch", "8000000000000"}, 2, {"--train.global_batch", "must be from 1 to"}},
      {0, {"--repro.slices", "4294967300"}, 2, {"--repro.slices", "must be from 1 to"}},
      {0, {"--device.threads", "4294967297"}, 2, {"--device.threads is out of range", "at most 1024"}},
      {0, {"--model.config", ""}, 2, {"--model.config is missing"}},
      {0, {"--config", *world_ / "nowhere.cfg"}, 2, {"nowhere.cfg", "No such file"}},
      {0, {"--train.ramp_batch", "16"}, 2, {"--train.ramp_batch", "--train.ramp_tokens", "give both or neither"}},
      {0, {"--train.ramp_batch", "64", "--train.ramp_tokens", "9"}, 2, {"--train.ramp_batch = 64", "is above"}},
      {0,
       {"--optim.schedule", "step", "--optim.step_first", "0.9", "--optim.step_second", "0.1"},
       2,
       {"--optim.step_second", "between 0.9 and 1"}},
      {0, {"--model.yarn", "on"}, 2, {"YaRN"}},
      {0, {"--debug.timeout_s", "-1"}, 2, {"--debug.timeout_s", "at least 0"}},
  });
  write_file(*world_ / "wrong.cfg", "[optim]\nlrr = 3\n");
  expect_errors({
      {3, {"train"}, 2, {"--model.config is missing", "--help"}},
      {0, {"train", "--config", *world_ / "wrong.cfg"}, 2, {"'optim.lrr'", "wrong.cfg:2", "did you mean 'optim.lr'?"}},
      {0, {"train", "--model.config", "x"}, 2, {"--data.corpus is missing"}},
      {0, {"train", "--model.config", "x", "--data.corpus", "y"}, 2, {"--run.dir is missing"}},
  });
}

TEST_F(Errors, OfBatchesAndRanks) {
  expect_refused({
      {3, {"--train.global_batch", "30"}, 2, {"--train.global_batch 30", "8 lanes", "use 24 or 32", "1, 2, 3, 5, 6"}},
      {2, {"--train.global_batch", "4"}, 2, {"--train.global_batch 4", "8 lanes", "use 8, or"}},
      {3, {"--train.micro_batch", "3"}, 2, {"--train.micro_batch 3", "4 sequences of a lane", "use one of 1, 2, 4"}},
      {0, {"--train.ramp_batch", "12", "--train.ramp_tokens", "99"}, 2, {"--train.ramp_batch 12", "use 8 or 16"}},
      {2, {"--device", "cuda"}, 2, {"--device cuda", "no CUDA", "use --device cpu or auto"}},
      {2, {"--comm", "nccl"}, 2, {"--comm nccl", "use --comm mpi or auto"}},
      {3, {"--repro.slices", "3"}, 2, {"3 slices", "8 attention heads", "4 key/value heads", "1, 2, 4"}},
      {0, {"--train.sequence", "65"}, 2, {"--train.sequence 65", "max_position_embeddings is 64"}},
      {0,
       {"--repro.lanes", "5", "--train.global_batch", "30"},
       2,
       {"5 lanes", "train shards", "1, 2, 3, 4, 6, 8, 12, 24", "--shards 25"}},
  });
  expect_refused({{0, {"--balance.device_groups", "3"}, 2, {"--balance.device_groups 3", "8 experts", "1, 2, 4, 8"}}},
                 "moe");
}

TEST_F(Errors, OfDegreesOfParallelism) {
  expect_refused({
      {3, {"--tp", "2"}, 2, {"--parallel.tensor 2 --parallel.pipeline 1 cannot be run on 3 ranks", "1 x 1 x 3"}},
      {3, {"--dp", "2"}, 2, {"--parallel.data 2 cannot be run on 3 ranks", "is not the number of ranks", "1 x 1 x 3"}},
      {4, {"--tp", "2", "--pp", "2", "--dp", "2"}, 2, {"cannot be run on 4 ranks", "2 x 2 x 1", "2 x 1 x 2"}},
      {3, {"--tp", "3"}, 2, {"--parallel.tensor 3 does not divide the 4 slices", "--repro.slices"}},
      {3, {"--repro.lanes", "2"}, 2, {"3 data-parallel ranks cannot share 2 lanes", "--repro.lanes"}},
      {2, {"--ep", "2"}, 2, {"--parallel.expert 2 cannot be used", "the model has no experts"}},
      {3, {"--pp", "3"}, 2, {"--parallel.pipeline 3 is too much", "2 layers cannot fill 3 stages"}},
      {2, {"--pp", "2", "--parallel.schedule", "dualpipev"}, 2, {"2 layers cannot fill 2 stages of 2 virtual stages"}},
      {0, {"--parallel.schedule", "interleave"}, 2, {"must be one of", "did you mean 'interleaved'?"}},
      {0, {"--parallel.virtual_stages", "2"}, 2, {"schedule 1f1b cannot give a stage 2 chunks", "interleaved"}},
      {0,
       {"--parallel.schedule", "dualpipev", "--parallel.virtual_stages", "1"},
       2,
       {"schedule dualpipev cannot give a stage 1 chunks", "use 2"}},
      {2, {"--pp", "2", "--parallel.layers", "2"}, 2, {"cut of layers '2' has 1 chunks", "give 2 numbers"}},
      {2, {"--pp", "2", "--parallel.layers", "1,x"}, 2, {"'1,x' is not a cut of layers", "'x' is not a number"}},
      {2, {"--pp", "2", "--parallel.layers", "2,0"}, 2, {"'2,0' leaves a chunk without layers", "from 1 up"}},
      {2, {"--pp", "2", "--parallel.layers", "1,2"}, 2, {"'1,2' has 3 layers", "the model has 2", "add up to 2"}},
      {0, {"--debug.random_delays_ms", "-1"}, 2, {"--debug.random_delays_ms", "at least 0"}},
  });
  expect_refused(
      {{3, {"--ep", "2"}, 2, {"--parallel.expert 2 does not divide the 3 data-parallel ranks", "use one of 1"}},
       {3, {"--ep", "3"}, 2, {"--parallel.expert 3 does not divide the 8 experts", "use one of 1"}}},
      "moe");
  model("few-experts", "moe",
        {R"("n_routed_experts": 8)", R"("n_routed_experts": 2)", R"("n_group": 4)", R"("n_group": 1)",
         R"("topk_group": 2)", R"("topk_group": 1)"});
  expect_refused({{4, {"--tp", "2", "--ep", "2"}, 2, {"shares 2 experts out among 4 ranks", "each needs one"}}},
                 "few-experts");
}

TEST_F(Errors, OfTheModelsConfig) {
  expect_refused({{3, {}, 1, {"absent.json'", "No such file", "--model.config"}}}, "absent");
  fs::create_directory(*world_ / "folder.json");
  expect_refused({{0, {}, 1, {"folder.json'", "Is a directory", "--model.config"}}}, "folder");
  for (std::string const text : {"", "{\"architectures\": ", "isotrain"}) {
    write_file(*world_ / "text.json", text);
    expect_refused({{0, {}, 1, {"text.json' is not JSON", "line 1"}}}, "text");
  }
  write_file(*world_ / "list.json", "[1, 2]");
  expect_refused({{0, {}, 2, {"list.json'", "not a JSON object"}}}, "list");

  model("several", "llama",
        {R"("vocab_size": 257)", R"("vocab_size": "257")", R"("intermediate_size": 72,)", "", R"("silu")", R"("gelu")",
         R"("num_hidden_layers": 2)", R"("num_hidden_layers": 2.5)", R"("attention_bias": false)",
         R"("attention_bias": true)"});
  expect_refused({{3,
                   {},
                   2,
                   {"several.json'", "vocab_size is \"257\", not an integer", "intermediate_size is missing",
                    "hidden_act is \"gelu\"", "num_hidden_layers is 2.5", "attention_bias is true"}}},
                 "several");
  model("foreign", "llama", {"LlamaForCausalLM", "GPT2LMHeadModel"});
  expect_refused({{0, {}, 2, {"architectures is [\"GPT2LMHeadModel\"]", "LlamaForCausalLM", "Deepseek"}}}, "foreign");
  model("heads", "llama", {R"("hidden_size": 32)", R"("hidden_size": 34)"});
  expect_refused({{0, {}, 2, {"num_attention_heads 8 does not divide hidden_size 34"}}}, "heads");
  model("shared", "llama", {R"("num_key_value_heads": 4)", R"("num_key_value_heads": 3)"});
  expect_refused({{0, {}, 2, {"num_key_value_heads 3 does not divide num_attention_heads 8"}}}, "shared");
  model("width", "llama", {R"("intermediate_size": 72)", R"("intermediate_size": 70)"});
  expect_refused({{0, {}, 2, {"4 slices", "70 columns of the feed-forward layer", "1, 2"}}}, "width");
  model("groups", "moe", {R"("n_group": 4)", R"("n_group": 3)"});
  expect_refused({{0, {}, 2, {"n_group 3 does not divide n_routed_experts 8"}}}, "groups");
  model("choices", "moe", {R"("num_experts_per_tok": 2)", R"("num_experts_per_tok": 5)"});
  expect_refused({{0, {}, 2, {"num_experts_per_tok 5", "4 experts"}}}, "choices");
  model("small", "llama", {R"("vocab_size": 257)", R"("vocab_size": 100)"});
  expect_refused({{3, {}, 2, {"257 tokens", "vocab_size is 100", "raise vocab_size"}}}, "small");
}

TEST_F(Errors, OfMemory) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer ends a program that asks for too much";
#endif
  // More than any address space holds.
  model("giant", "llama",
        {R"("hidden_size": 32)", R"("hidden_size": 65536)", R"("intermediate_size": 72)",
         R"("intermediate_size": 65536)", R"("num_hidden_layers": 2)", R"("num_hidden_layers": 4000)"});
  expect_refused({{2, {}, 1, {"cannot allocate", "matrices'", "out of memory", "--dry-run"}}}, "giant");
}

TEST_F(Errors, OfTheCorpus) {
  std::string const absent = *world_ / "absent";
  auto const not_json = corpus("not-json");
  write_file(not_json / "corpus.json", "{");
  auto const mistyped = corpus("mistyped");
  std::string const description = read_file(mistyped / "corpus.json");
  write_file(mistyped / "corpus.json", replaced(description, R"("vocabulary_size": 257)", R"("vocabulary_size": "x")"));
  auto const wrong_sum = corpus("wrong-sum");
  write_file(wrong_sum / "corpus.json", replaced(description, R"("tokens": )", R"("tokens": 1)"));
  auto const untokenized = corpus("untokenized");
  fs::remove(untokenized / "tokenizer.bin");

  auto const truncated = corpus("truncated");
  fs::resize_file(truncated / "shard-00003.h5", 3000);
  auto const missing = corpus("missing");
  fs::remove(missing / "shard-00007.h5");
  auto const no_hdf5 = corpus("no-hdf5");
  write_file(no_hdf5 / "shard-00002.h5", "tokens");
  auto const no_shard = corpus("no-shard");
  fs::copy_file(*world_ / "run" / "checkpoints" / checkpoint_name(4), no_shard / "shard-00002.h5",
                fs::copy_options::overwrite_existing);
  auto const exchanged = corpus("exchanged");
  fs::copy_file(exchanged / "shard-00001.h5", exchanged / "shard-00002.h5", fs::copy_options::overwrite_existing);
  auto const other_tokenizer = corpus("other-tokenizer");
  fs::copy_file(*world_ / "subwords" / "shard-00002.h5", other_tokenizer / "shard-00002.h5",
                fs::copy_options::overwrite_existing);
  auto const flipped = corpus("flipped");
  {
    // Two letters in a row as 16-bit tokens: within the tokens, and the change leaves ids of the vocabulary.
    std::string bytes = read_file(flipped / "shard-00005.h5");
    std::size_t at = 0;
    auto const letter = [&](std::size_t i) { return bytes[i] >= 'a' && bytes[i] <= 'z' && bytes[i + 1] == 0; };
    while (at + 4 < bytes.size() && !(letter(at) && letter(at + 2))) ++at;
    ASSERT_LT(at + 4, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    write_file(flipped / "shard-00005.h5", bytes);
  }
  write_file(*world_ / "little.txt", made_up_text(4000));
  std::string const little = *world_ / "little";
  ASSERT_EQ(run(isotrain({"prepare", *world_ / "little.txt", "--documents", "paragraphs", "--tokenizer", "bytes",
                          "--validation", "0", "--shards", "8", "--out", little}))
                .exit_code,
            0);
  write_file(*world_ / "nothing.txt", "a few words\n");
  std::string const nothing = *world_ / "nothing";
  auto const prepared = run(isotrain({"prepare", *world_ / "nothing.txt", "--documents", "paragraphs", "--tokenizer",
                                      "bytes", "--validation", "0", "--shards", "1", "--out", nothing}));
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;

  auto const from = [](fs::path const& folder, Words more = {}) {
    more.insert(more.end(), {"--data.corpus", folder});
    return more;
  };
  expect_refused({
      {3, from(absent), 1, {"absent'", "no corpus.json", "isotrain prepare"}},
      {0, from(not_json), 1, {"not-json/corpus.json' is not JSON"}},
      {0, from(mistyped), 1, {"mistyped/corpus.json'", "'vocabulary_size'", "it is \"x\""}},
      {0, from(wrong_sum), 1, {"wrong-sum/corpus.json' contradicts itself", "train tokens"}},
      {3, from(untokenized), 1, {"untokenized/tokenizer.bin'", "No such file"}},
      {3, from(truncated), 1, {"truncated/shard-00003.h5'", "truncated file", "rank 1", "copied to its end?"}},
      {3, from(missing), 1, {"missing/shard-00007.h5'", "No such file", "rank 2"}},
      {0, from(no_hdf5), 1, {"no-hdf5/shard-00002.h5'", "is it an HDF5 file"}},
      {3, from(no_shard), 1, {"no-shard/shard-00002.h5'", "another program"}},
      {3, from(exchanged), 1, {"exchanged/shard-00002.h5' is not the shard that corpus.json describes"}},
      {3, from(other_tokenizer), 1, {"other-tokenizer/shard-00002.h5'", "its tokenizer is"}},
      {3, from(flipped), 1, {"flipped/shard-00005.h5'", "digest"}},
      {0, from(nothing, {"--repro.lanes", "1"}), 1, {"nothing'", "nothing to read", "a sequence takes 33"}},
      {0, from(little, {"--train.global_batch", "160"}), 1, {"little'", "smaller than a batch", "160 sequences"}},
  });
  // The same file is an error where its contents are looked at.
  expect_errors({
      {3, {"eval", *world_ / "run", "--data.corpus", flipped, "--data.split", "train"}, 1, {"shard-00005.h5'"}},
      {0, {"inspect", flipped, "--verify"}, 1, {"shard-00005.h5'"}},
  });
}

TEST_F(Errors, OfOtherCommands) {
  std::string const finished = *world_ / "run";
  expect_errors({
      {0, {"trian"}, 2, {"unknown command 'trian'", "did you mean 'train'?"}},
      {0, {"sing"}, 2, {"unknown command 'sing'", "--help"}},
      {0, {"version", "now"}, 2, {"'now'"}},
      {3, {"eval"}, 2, {"'model' is missing"}},
      {3, {"eval", *world_ / "absent"}, 1, {"absent'", "No such file"}},
      {3, {"eval", *world_ / "corpus"}, 1, {"no complete checkpoint in", "run folder"}},
      {3, {"eval", *world_ / "text.txt"}, 1, {"text.txt'", "is it an HDF5 file"}},
      {3, {"eval", finished, "--train.sequence", "65"}, 2, {"65 tokens", "max_position_embeddings"}},
      {3, {"eval", finished, "--data.corpus", *world_ / "subwords"}, 1, {"subwords'", "another tokenizer"}},
      {0, {"eval", finished, "--data.split", "test"}, 2, {"--data.split", "train, validation"}},
      {0, {"generate", finished, "--promt", "a"}, 2, {"'--promt'", "did you mean '--prompt'?"}},
      {0, {"generate", finished, "--prompt", std::string(64, 'a')}, 2, {"prompt is too long", "64 tokens"}},
      {0, {"generate", finished, "--top-p", "2"}, 2, {"--top-p", "from 0 to 1"}},
      {0, {"generate", *world_ / "corpus" / "shard-00000.h5"}, 1, {"shard-00000.h5'", "not a checkpoint"}},
      {0, {"inspect", *world_ / "absent"}, 1, {"absent'"}},
  });
  // Not far from those: nothing to complain about.
  expect_success(run(mpirun(3, {"eval", finished, "--train.sequence", "64", "--eval.windows", "5"})));
  expect_success(run(isotrain({"generate", finished, "--prompt", std::string(60, 'a'), "--tokens", "99"})));
  expect_success(run(isotrain({"inspect", finished, "--verify"})));
}

TEST_F(Errors, HelpAndDefaultsAreNone) {
  std::string const finished = *world_ / "run";
  struct Command {
    std::string name;
    Words arguments;  // that suffice
  };
  std::vector<Command> const commands{
      {"prepare", {*world_ / "text.txt", "--out", *world_ / "again", "--shards", "8"}},
      {"train",
       {"--model.config", *world_ / "llama.json", "--data.corpus", *world_ / "corpus", "--train.sequence", "32",
        "--dry-run"}},
      {"eval", {finished, "--eval.windows", "2"}},
      {"generate", {finished, "--tokens", "2"}},
      {"inspect", {finished}},
      {"diff", {finished, finished}},
      {"version", {}},
  };
  for (auto const& [name, sufficient] : commands) {
    SCOPED_TRACE(name);
    auto const help = run(isotrain({name, "--help"}));
    expect_success(help);
    EXPECT_NE(help.out.find("isotrain " + name), std::string::npos);
    auto const defaults = run(isotrain({name, "--dump-defaults"}));
    expect_success(defaults);
    write_file(*world_ / "defaults.cfg", defaults.out);
    Words arguments{name};
    arguments.insert(arguments.end(), sufficient.begin(), sufficient.end());
    arguments.insert(arguments.end(), {"--config", *world_ / "defaults.cfg"});
    auto const used = run(isotrain(arguments));
    EXPECT_EQ(used.exit_code, 0) << used.err;
    EXPECT_TRUE(lines_with("error", used.err).empty()) << used.err;
  }
  expect_success(run(isotrain({"--help"})));
  auto const once = run(mpirun(3, {"train", "--help"}));
  expect_success(once);
  EXPECT_EQ(lines_with("Trains a model", once.out).size(), 1U) << once.out;
}

TEST_F(Errors, ADryRunWritesNothing) {
  auto const contents = [] {
    std::vector<fs::path> found;
    for (auto const& entry : fs::recursive_directory_iterator(*world_ / "")) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  };
  auto const before = contents();
  auto const result = run(mpirun(2, world_->train("moe", "dry", {"--dry-run"})));
  expect_success(result);
  EXPECT_NE(result.out.find("memory of rank 0"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("MiB"), std::string::npos) << result.out;
  EXPECT_EQ(contents(), before);
}

TEST_F(Errors, ADryRunTellsTheLayout) {
  auto const result = run(mpirun(4, world_->train("moe", "dry", {"--dry-run", "--tp", "2", "--pp", "2"})));
  expect_success(result);
  for (char const* const part : {"tensor 2 x pipeline 2 x data 1, expert 1", "rank  host", "stage", "parameters held",
                                 "pipeline 1f1b", "bubble", "memory of rank 0", "gradients"}) {
    EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
  }
}

}  // namespace
}  // namespace isotrain::test
