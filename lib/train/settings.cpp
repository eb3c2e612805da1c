#include "lib/train/settings.h"

namespace isotrain {
namespace {

// Far above what anyone runs, and small enough that products of them and lists of their divisors are no concern.
constexpr double most_steps = 1e9;
constexpr double most_sequences = 1 << 20;
constexpr double most_parts = 1 << 16;

}  // namespace

void declare(Settings& table, TrainSettings& s) {
  table.add("model.config", s.model.config, {.help = "Hugging Face config.json that describes the model."});
  table.add("model.precision", s.model.precision,
            {.help = "Numbers that the model computes with; master weights, gradients and sums are always fp32.",
             .choices = {"fp32", "bf16"}});
  table.add("model.recompute", s.model.recompute,
            {.help = "Activations computed again in the backward pass instead of kept: none; selective (norms, SwiGLU, "
                     "latent up-projections); full (all but each layer's input). Same bits, less memory, more time.",
             .choices = {"none", "selective", "full"}});
  table.add("model.init_std", s.model.init_std,
            {.help = "Standard deviation of the initial weights; 0 takes initializer_range of the config. DeepSeek "
                     "trains from 0.006.",
             .check = at_least(0)});
  table.add("model.yarn", s.model.yarn,
            {.help = "YaRN context extension: as the config says, or forced on or off (pre-training is off).",
             .choices = {"auto", "on", "off"}});

  table.add("data.corpus", s.data.corpus, {.help = "Folder that `isotrain prepare` wrote."});
  table.add("data.verify", s.data.verify,
            {.help = "What is checked of the shards before the first step: full reads them once, quick trusts their "
                     "digests.",
             .choices = {"full", "quick"}});

  table.add("train.steps", s.train.steps,
            {.help = "Optimizer steps of the whole run.", .unit = "steps", .check = between(1, most_steps)});
  table.add("train.global_batch", s.train.global_batch,
            {.help = "Sequences a step, over all ranks.", .unit = "sequences", .check = between(1, most_sequences)});
  table.add("train.micro_batch", s.train.micro_batch,
            {.help = "Sequences in one forward pass; 0 chooses. Never changes the bits.",
             .unit = "sequences",
             .check = at_least(0)});
  table.add("train.sequence", s.train.sequence,
            {.help = "Length of a sequence.", .unit = "tokens", .check = at_least(1)});
  table.add("train.seed", s.train.seed, {.help = "Keys initial weights and the order of samples."});
  table.add("train.ramp_batch", s.train.ramp_batch,
            {.help = "Global batch of the first step, growing to train.global_batch; 0: no ramp.",
             .unit = "sequences",
             .check = at_least(0)});
  table.add("train.ramp_tokens", s.train.ramp_tokens,
            {.help = "Tokens over which the batch grows.", .unit = "tokens", .check = at_least(0)});

  table.add("optim.lr", s.optim.lr, {.help = "Peak learning rate.", .check = above(0)});
  table.add("optim.schedule", s.optim.schedule,
            {.help = "Learning rate after the warm-up: cosine to the floor; constant; step (DeepSeek-V2); v3 "
                     "(DeepSeek-V3's four phases); wsd (stable, then decay).",
             .choices = {"cosine", "constant", "step", "v3", "wsd"}});
  table.add(
      "optim.warmup", s.optim.warmup,
      {.help = "Linear warm-up: a fraction of the run if below 1, else a number of steps.", .check = at_least(0)});
  table.add("optim.floor", s.optim.floor,
            {.help = "Where cosine and wsd end, as a share of the peak.", .check = between(0, 1)});
  table.add("optim.step_first", s.optim.step_first,
            {.help = "Schedule step: share of the run's tokens at the first drop.", .check = between(0, 1)});
  table.add("optim.step_second", s.optim.step_second,
            {.help = "Schedule step: share of the run's tokens at the second drop.", .check = between(0, 1)});
  table.add("optim.step_factor", s.optim.step_factor,
            {.help = "Schedule step: factor of each drop.", .check = between(0, 1)});
  table.add("optim.decay_fraction", s.optim.decay_fraction,
            {.help = "Schedule wsd: share of the run's tokens that the decay takes.", .check = between(0, 1)});
  table.add("optim.decay_shape", s.optim.decay_shape,
            {.help = "Schedule wsd: shape of the decay.", .choices = {"linear", "sqrt"}});
  table.add("optim.beta1", s.optim.beta1, {.help = "AdamW: decay of the first moment.", .check = between(0, 1)});
  table.add("optim.beta2", s.optim.beta2, {.help = "AdamW: decay of the second moment.", .check = between(0, 1)});
  table.add("optim.epsilon", s.optim.epsilon,
            {.help = "AdamW: added to the root of the second moment.", .check = above(0)});
  table.add("optim.weight_decay", s.optim.weight_decay,
            {.help = "AdamW: decoupled weight decay of matrices; norm gains do not decay.", .check = at_least(0)});
  table.add("optim.clip", s.optim.clip, {.help = "Largest gradient norm; 0: no clipping.", .check = at_least(0)});

  table.add("balance.bias_rate", s.balance.bias_rate,
            {.help = "Step of the router bias (gamma of auxiliary-loss-free balancing) in models that have one.",
             .check = at_least(0)});
  table.add("balance.bias_fraction", s.balance.bias_fraction,
            {.help = "Share of the run's tokens after which the router bias rests (DeepSeek-V3: 14.3 of 14.8).",
             .check = between(0, 1)});
  table.add(
      "balance.expert_alpha", s.balance.expert_alpha,
      {.help = "Weight of the balancing loss over experts, per sequence; -1 takes aux_loss_alpha of the config, or "
               "1e-4 for a V3 config without it.",
       .check = at_least(-1)});
  table.add("balance.device_alpha", s.balance.device_alpha,
            {.help = "Weight of the device-level balancing loss (V2).", .check = at_least(0)});
  table.add("balance.comm_alpha", s.balance.comm_alpha,
            {.help = "Weight of the communication balancing loss (V2).", .check = at_least(0)});
  table.add("balance.device_groups", s.balance.device_groups,
            {.help = "Groups of experts that those two losses call devices.", .check = between(1, most_parts)});
  table.add(
      "balance.max_devices", s.balance.max_devices,
      {.help = "Devices that a token may be sent to, for the communication loss.", .check = between(1, most_parts)});

  table.add(
      "parallel.tensor", s.parallel.tensor,
      {.help = "Tensor-parallel ranks: they share heads, FFN width and vocabulary by slices, and the tokens between "
               "blocks. Divides the slices.",
       .check = at_least(1),
       .alias = "tp"});
  table.add("parallel.pipeline", s.parallel.pipeline,
            {.help = "Pipeline stages: they share the layers.", .check = at_least(1), .alias = "pp"});
  table.add("parallel.data", s.parallel.data,
            {.help = "Data-parallel ranks: they share the lanes; 0: as many as are left of those started.",
             .check = at_least(0),
             .alias = "dp"});
  table.add(
      "parallel.expert", s.parallel.expert,
      {.help = "Data-parallel ranks that share the routed experts. Divides the data-parallel ranks and the experts.",
       .check = at_least(1),
       .alias = "ep"});
  table.add("parallel.schedule", s.parallel.schedule,
            {.help = "Order of the micro-batches in the pipeline. Never changes the bits.",
             .choices = {"gpipe", "1f1b", "interleaved", "zb-h1", "dualpipev"}});
  table.add(
      "parallel.virtual_stages", s.parallel.virtual_stages,
      {.help = "Runs of layers on each pipeline rank, with the schedule interleaved; 0 chooses. Without a pipeline, "
               "too: the gradients of one are summed over ranks while the earlier ones compute.",
       .check = at_least(0)});
  table.add(
      "parallel.layers", s.parallel.layers,
      {.help = "Layers of each run of the pipeline, in the order of the model, such as 3,3,2; if not given, so that "
               "the slowest is as fast as can be."});
  table.add(
      "parallel.overlap", s.parallel.overlap,
      {.help = "Add up gradients over data-parallel ranks as soon as a run of layers has them, while others compute. "
               "Never changes the bits."});
  table.add("repro.slices", s.repro.slices,
            {.help = "Logical cuts of heads, FFN width and vocabulary: the most ranks that tensor parallelism can use. "
                     "Part of the envelope that fixes the bits.",
             .check = between(1, most_parts)});
  table.add(
      "repro.lanes", s.repro.lanes,
      {.help = "Logical cuts of the global batch: the most ranks that data parallelism can use. Part of the envelope "
               "that fixes the bits.",
       .check = between(1, most_parts)});
  table.add("repro.bf16", s.repro.bf16,
            {.help = "Which exactly defined sum a bf16 product is. Part of the envelope that fixes the bits.",
             .choices = {"tiles", "pairs"}});

  table.add(
      "repro.ledger", s.repro.ledger,
      {.help = "Write hashes of each step's activations, gradients and weights to ledger.jsonl, for isotrain diff."});
  table.add("checkpoint.every", s.checkpoint.every,
            {.help = "Steps between checkpoints; 0: only at the end.", .unit = "steps", .check = at_least(0)});
  table.add("checkpoint.keep", s.checkpoint.keep,
            {.help = "Newest checkpoints that are kept.", .check = between(1, most_parts)});
  table.add("eval.every", s.eval.every,
            {.help = "Steps between validations; 0: never.", .unit = "steps", .check = at_least(0)});
  table.add("eval.windows", s.eval.windows,
            {.help = "Windows of the validation split in one validation; 0: all.", .check = at_least(0)});
  table.add("log.every", s.log.every,
            {.help = "Steps between progress lines where standard output is no terminal.",
             .unit = "steps",
             .check = at_least(1)});
  table.add("run.dir", s.run.dir, {.help = "Run folder: settings, metrics, logs, checkpoints."});
  table.add("run.max_seconds", s.run.max_seconds,
            {.help = "Stop with a checkpoint and exit code 75 after this time; 0: no limit.",
             .unit = "s",
             .check = at_least(0)});
  table.add("debug.timeout_s", s.debug.timeout_s,
            {.help = "End the run with a report in the run folder's watchdog/ if nothing has moved between ranks for "
                     "this time; longer than the longest step, validation or checkpoint. 0: never.",
             .unit = "s",
             .check = at_least(0)});
  table.add("debug.check_collectives", s.debug.check_collectives,
            {.help = "Compare what all ranks are about to do before each operation among them, and say who differs "
                     "instead of hanging. Slow."});
  table.add(
      "debug.check_replicas", s.debug.check_replicas,
      {.help = "Compare the weights that ranks hold in common every so many steps, and name the rank that drifted; "
               "0: never.",
       .unit = "steps",
       .check = at_least(0)});
  table.add("debug.random_delays_ms", s.debug.random_delays_ms,
            {.help = "Sleep for a random time up to this before each operation between ranks, on each rank for another "
                     "one: for tests that the bits do not depend on who comes first.",
             .unit = "ms",
             .check = at_least(0)});
  table.add(
      "resume", s.resume,
      {.help = "auto: go on from the newest complete checkpoint of the run folder if there is one; none: a new run; "
               "else the path of a checkpoint."});
  table.add(
      "device", s.device.kind,
      {.help = "Where the model runs; auto takes what this build and host have.", .choices = {"auto", "cpu", "cuda"}});
  table.add(
      "device.isa", s.device.isa,
      {.help = "Highest instruction set that CPU kernels may use. Never changes the bits; forced ones are for tests.",
       .choices = {"auto", "scalar", "avx2", "avx512", "amx"}});
  table.add(
      "device.threads", s.device.threads,
      {.help = "Threads of each rank; 0: OMP_NUM_THREADS, or the host's cores shared among its ranks. Never changes "
               "the bits.",
       .check = at_least(0)});
  table.add("comm", s.comm, {.help = "What moves data between ranks.", .choices = {"auto", "mpi", "nccl"}});
  table.add("dry-run", s.dry_run,
            {.help = "Check everything, print the layout, parameters and memory of a rank, and exit."});
}

}  // namespace isotrain
