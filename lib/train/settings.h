#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/base/settings.h"

namespace isotrain {

/// Every setting of `train`. Sections are the parts of a name before the dot; each member's help, unit and check stand
/// once, in settings.cpp.
struct TrainSettings {
  struct {
    std::filesystem::path config;  // Hugging Face config.json
    std::string precision = "fp32";
    std::string recompute = "none";
    double init_std = 0;  // 0: the config's initializer_range
    std::string yarn = "auto";
  } model;
  struct {
    std::filesystem::path corpus;
    std::string verify = "full";
  } data;
  struct {
    std::int64_t steps = 1000;
    std::int64_t global_batch = 32;  // sequences a step
    std::int64_t micro_batch = 0;    // sequences in one forward pass; 0: chosen
    std::int64_t sequence = 512;     // tokens
    std::int64_t seed = 1;
    std::int64_t ramp_batch = 0;   // first global batch of a ramp; 0: none
    std::int64_t ramp_tokens = 0;  // tokens over which the batch grows
  } train;
  struct {
    double lr = 3e-4;
    std::string schedule = "cosine";
    double floor = 0.01;      // of lr
    double warmup = 0.08;     // below 1: of the run; else steps
    double step_first = 0.6;  // of the run, schedule step
    double step_second = 0.9;
    double step_factor = 0.316;
    double decay_fraction = 0.2;  // of the run, schedule wsd
    std::string decay_shape = "linear";
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double clip = 1.0;
  } optim;
  struct {
    double bias_rate = 1e-3;       // gamma of the router bias update
    double bias_fraction = 0.966;  // of the run, after which it stops
    double expert_alpha = -1;      // -1: config's aux_loss_alpha, or 1e-4 for V3
    double device_alpha = 0;
    double comm_alpha = 0;
    std::int64_t device_groups = 1;
    std::int64_t max_devices = 1;
  } balance;
  struct {
    std::int64_t tensor = 1;
    std::int64_t pipeline = 1;
    std::int64_t data = 0;  // 0: as many as ranks
    std::int64_t expert = 1;
    std::string schedule = "1f1b";
    std::int64_t virtual_stages = 0;  // 0: as few as the schedule takes
    std::string layers;               // of each chunk, "3,3,2"; empty: even by cost
    bool overlap = true;              // sums over lanes beside the backward pass
  } parallel;
  struct {
    std::int64_t slices = 4;
    std::int64_t lanes = 8;
    std::string bf16 = "tiles";
    bool ledger = false;
  } repro;
  struct {
    std::int64_t every = 0;  // steps; 0: at the end only
    std::int64_t keep = 2;
  } checkpoint;
  struct {
    std::int64_t every = 0;    // steps; 0: never
    std::int64_t windows = 0;  // 0: the whole validation split
  } eval;
  struct {
    std::int64_t every = 10;
  } log;
  struct {
    std::filesystem::path dir;
    double max_seconds = 0;
  } run;
  struct {
    double timeout_s = 0;  // 0: no watchdog
    bool check_collectives = false;
    std::int64_t check_replicas = 0;  // steps; 0: never
    double random_delays_ms = 0;
  } debug;
  std::string resume = "auto";
  struct {
    std::string kind = "auto";
    std::string isa = "auto";
    std::int64_t threads = 0;
  } device;
  std::string comm = "auto";
  bool dry_run = false;
};

/// Declares every setting in `table`, bound to the members of `settings`, which must outlive it.
void declare(Settings& table, TrainSettings& settings);

}  // namespace isotrain
