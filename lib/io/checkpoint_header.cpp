#include "lib/io/checkpoint_header.h"

#include <algorithm>

#include "lib/base/digest.h"
#include "lib/base/error.h"
#include "lib/io/piece_sums.h"

namespace isotrain::io {
namespace {

char const* const format_name = "isotrain checkpoint";

/// Every field goes in with its length, so that moving a byte from one to the next shows.
class HeaderDigest {
 public:
  HeaderDigest& add(std::string const& text) {
    add(std::uint64_t{text.size()});
    digest_.update(text);
    return *this;
  }
  HeaderDigest& add(std::uint64_t value) {
    digest_.update(&value, sizeof value);
    return *this;
  }
  template <class T>
  HeaderDigest& add(std::vector<T> const& values) {
    add(std::uint64_t{values.size()});
    digest_.update(values.data(), values.size() * sizeof(T));
    return *this;
  }
  std::uint64_t value() const { return digest_.value(); }

 private:
  Digest digest_;
};

/// Never 0, which stands for "not complete".
std::uint64_t digest_of(CheckpointHeader const& h, CheckpointSums const& sums) {
  HeaderDigest digest;
  digest.add(h.step).add(h.tokens).add(h.seed);
  digest.add(static_cast<std::uint64_t>(h.slices))
      .add(static_cast<std::uint64_t>(h.lanes))
      .add(h.bf16)
      .add(h.precision);
  digest.add(h.numerics_class).add(h.numerics_fingerprint).add(h.weights_fingerprint);
  digest.add(h.config_json).add(h.settings_ini).add(h.lane_positions).add(h.tokenizer);
  for (auto const& [name, values] : h.state) digest.add(name).add(values);
  digest.add(index_to_json(h.index));
  for (auto const& [name, elements] : h.flat) digest.add(name).add(elements).add(sums.at(name));
  return std::max<std::uint64_t>(digest.value(), 1);
}

std::uint64_t read_hex(hid_t object, std::string const& name) {
  return std::strtoull(hdf5::read_attribute<std::string>(object, name).c_str(), nullptr, 16);
}

/// Elements of the weights dataset, on which the index is laid out.
std::uint64_t weights_size(CheckpointHeader const& h) {
  auto const found = h.flat.find(weights_dataset);
  return found == h.flat.end() ? 0 : found->second;
}

}  // namespace

void write_checkpoint_header(hdf5::File const& file, CheckpointHeader const& h) {
  expects(index_fault(h.index, weights_size(h)).empty(), "an index of the weights dataset");
  std::lock_guard const lock(hdf5_mutex());
  auto const top = file.get();
  hdf5::write_attribute(top, "format", std::string(format_name));
  hdf5::write_attribute(top, "format_version", checkpoint_format_version);
  hdf5::write_attribute(top, "step", h.step);
  hdf5::write_attribute(top, "tokens", h.tokens);
  hdf5::write_attribute(top, "seed", h.seed);
  hdf5::write_attribute(top, "slices", h.slices);
  hdf5::write_attribute(top, "lanes", h.lanes);
  hdf5::write_attribute(top, "bf16", h.bf16);
  hdf5::write_attribute(top, "precision", h.precision);
  hdf5::write_attribute(top, "numerics_class", h.numerics_class);
  hdf5::write_attribute(top, "numerics_fingerprint", to_hex(h.numerics_fingerprint));
  hdf5::write_attribute(top, "weights_fingerprint", to_hex(h.weights_fingerprint));
  hdf5::write_text(top, "config.json", h.config_json);
  hdf5::write_text(top, "settings.ini", h.settings_ini);
  hdf5::write_text(top, "index.json", index_to_json(h.index));
  hdf5::write_all<std::int64_t>(top, "lane_positions", h.lane_positions);
  hdf5::write_all<std::uint8_t>(top, "tokenizer", h.tokenizer);
  auto const state = hdf5::create_group(top, "state");
  for (auto const& [name, values] : h.state) hdf5::write_all<float>(state.get(), name, values);
  auto const flat = hdf5::create_group(top, "flat");
  for (auto const& [name, elements] : h.flat) hdf5::create_dataset<float>(flat.get(), name, elements);
  auto const sums = hdf5::create_group(top, "checksums");
  for (auto const& [name, elements] : h.flat) {
    hdf5::create_dataset<std::uint64_t>(sums.get(), name, num_pieces(elements));
  }
  auto const tensors = hdf5::create_group(top, "tensors");
  for (auto const& entry : h.index) add_view(tensors.get(), entry, weights_size(h));
  std::uint64_t const not_complete[1] = {0};
  hdf5::write_all<std::uint64_t>(top, "header_digest", not_complete);
}

void complete_checkpoint(hdf5::File const& file, CheckpointHeader const& h, CheckpointSums const& sums, Writer writer) {
  std::lock_guard const lock(hdf5_mutex());
  for (auto const& [name, elements] : h.flat) {
    auto const dataset = hdf5::open_dataset<std::uint64_t>(file.get(), "checksums/" + name);
    if (writer == Writer::yes) hdf5::write<std::uint64_t>(dataset, 0, sums.at(name));
  }
  auto const dataset = hdf5::open_dataset<std::uint64_t>(file.get(), "header_digest");
  if (writer == Writer::no) return;
  std::uint64_t const digest[1] = {digest_of(h, sums)};
  hdf5::write<std::uint64_t>(dataset, 0, digest);
}

CheckpointHeader read_checkpoint_header(hdf5::File const& file, CheckpointSums* sums_out) {
  std::lock_guard const lock(hdf5_mutex());
  auto const top = file.get();
  auto const where = hdf5::describe(top);
  if (!hdf5::has_attribute(top, "format") || hdf5::read_attribute<std::string>(top, "format") != format_name) {
    throw Error(where + " is not a checkpoint", "it is HDF5, but not marked as '" + std::string(format_name) + "'");
  }
  auto const version = hdf5::read_attribute<std::uint64_t>(top, "format_version");
  if (version != checkpoint_format_version) {
    bool const older = version < checkpoint_format_version;
    throw Error(where + " has checkpoint format " + std::to_string(version) + ", this program reads format " +
                    std::to_string(checkpoint_format_version),
                older ? "an earlier version wrote it, with the weights in another order" : "a later version wrote it",
                older ? "read it with that version, or train again" : "use a newer program");
  }
  auto const digest = hdf5::read_all<std::uint64_t>(top, "header_digest");
  if (digest.size() != 1 || digest[0] == 0) {
    throw Error(where + " is not complete", "its writer was stopped before the end", "use another checkpoint");
  }
  CheckpointHeader h;
  h.step = hdf5::read_attribute<std::uint64_t>(top, "step");
  h.tokens = hdf5::read_attribute<std::uint64_t>(top, "tokens");
  h.seed = hdf5::read_attribute<std::uint64_t>(top, "seed");
  h.slices = hdf5::read_attribute<std::int64_t>(top, "slices");
  h.lanes = hdf5::read_attribute<std::int64_t>(top, "lanes");
  h.bf16 = hdf5::read_attribute<std::string>(top, "bf16");
  h.precision = hdf5::read_attribute<std::string>(top, "precision");
  h.numerics_class = hdf5::read_attribute<std::string>(top, "numerics_class");
  h.numerics_fingerprint = read_hex(top, "numerics_fingerprint");
  h.weights_fingerprint = read_hex(top, "weights_fingerprint");
  h.config_json = hdf5::read_text(top, "config.json");
  h.settings_ini = hdf5::read_text(top, "settings.ini");
  h.index = index_from_json(hdf5::read_text(top, "index.json"), where);
  h.lane_positions = hdf5::read_all<std::int64_t>(top, "lane_positions");
  h.tokenizer = hdf5::read_all<std::uint8_t>(top, "tokenizer");
  hdf5::Group const state(check_hdf5(H5Gopen2(top, "state", H5P_DEFAULT), "open group 'state' of", top));
  for (auto const& name : hdf5::names_in(state.get())) h.state[name] = hdf5::read_all<float>(state.get(), name);
  hdf5::Group const flat(check_hdf5(H5Gopen2(top, "flat", H5P_DEFAULT), "open group 'flat' of", top));
  CheckpointSums sums;
  for (auto const& name : hdf5::names_in(flat.get())) {
    h.flat[name] = hdf5::size(hdf5::open_dataset<float>(flat.get(), name));
    sums[name] = hdf5::read_all<std::uint64_t>(top, "checksums/" + name);
    if (sums[name].size() != num_pieces(h.flat[name])) {
      throw Error("header of " + where + " is damaged",
                  "dataset 'checksums/" + name + "' has another size than its data need");
    }
  }
  if (auto const fault = index_fault(h.index, weights_size(h)); !fault.empty()) {
    throw Error("index of " + where + " is damaged", fault, "use another checkpoint, or copy this one again");
  }
  if (auto const found = digest_of(h, sums); found != digest[0]) {
    throw Error("header of " + where + " is damaged",
                "its digest is " + to_hex(found) + ", " + to_hex(digest[0]) + " expected",
                "use another checkpoint, or copy this one again");
  }
  if (sums_out != nullptr) *sums_out = std::move(sums);
  return h;
}

}  // namespace isotrain::io
