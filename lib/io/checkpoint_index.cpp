#include "lib/io/checkpoint_index.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/base/error.h"
#include "lib/base/hdf5.h"
#include "lib/base/json.h"

namespace isotrain::io {
namespace {

bool has_size(CheckpointIndexEntry const& entry, std::int64_t total) {
  if (entry.shape.empty() || entry.shape.size() > 2) return false;
  // The order keeps a nonsensical product from being formed.
  return entry.rows() >= 1 && entry.columns() >= 1 && entry.rows() <= total / entry.columns();
}

/// One after the other from the top to the bottom, each as wide as the tensor.
bool covered_by_rows(CheckpointIndexEntry const& entry) {
  std::int64_t next = 0;
  for (auto const& p : entry.pieces) {
    if (p.first_row != next || p.rows < 0 || p.rows > entry.rows() - next) return false;
    if (p.first_column != 0 || p.columns != entry.columns()) return false;
    next += p.rows;
  }
  return next == entry.rows();
}

bool covered_by_columns(CheckpointIndexEntry const& entry) {
  std::int64_t next = 0;
  for (auto const& p : entry.pieces) {
    if (p.first_column != next || p.columns < 0 || p.columns > entry.columns() - next) return false;
    if (p.first_row != 0 || p.rows != entry.rows()) return false;
    next += p.columns;
  }
  return next == entry.columns();
}

void select(hdf5::Dataspace const& space, std::vector<hsize_t> const& start, std::vector<hsize_t> const& count) {
  check_hdf5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr),
             "make a view");
}

}  // namespace

std::string index_to_json(CheckpointIndex const& index) {
  auto list = nlohmann::ordered_json::array();
  for (auto const& entry : index) {
    auto pieces = nlohmann::ordered_json::array();
    for (auto const& p : entry.pieces) {
      pieces.push_back({{"offset", p.offset},
                        {"first_row", p.first_row},
                        {"first_column", p.first_column},
                        {"rows", p.rows},
                        {"columns", p.columns}});
    }
    list.push_back(
        {{"name", entry.name}, {"shape", entry.shape}, {"dtype", entry.dtype}, {"pieces", std::move(pieces)}});
  }
  return list.dump(1);
}

CheckpointIndex index_from_json(std::string const& text, std::string const& where) try {
  CheckpointIndex index;
  for (auto const& item : parse_json(text, "index of " + where)) {
    CheckpointIndexEntry entry{item.at("name"), item.at("shape"), item.at("dtype"), {}};
    for (auto const& p : item.at("pieces")) {
      entry.pieces.push_back({p.at("offset"), p.at("first_row"), p.at("first_column"), p.at("rows"), p.at("columns")});
    }
    index.push_back(std::move(entry));
  }
  return index;
} catch (nlohmann::json::exception const& e) {
  throw Error("index of " + where + " is damaged", e.what());
}

std::string index_fault(CheckpointIndex const& index, std::uint64_t total_elements) {
  auto const total = static_cast<std::int64_t>(total_elements);
  struct Place {
    std::int64_t begin;
    std::int64_t end;
    std::string const* name;
  };
  std::vector<Place> places;
  for (auto const& entry : index) {
    auto const tensor = "tensor '" + entry.name + "'";
    if (!has_size(entry, total)) return tensor + " has a shape that the flat datasets cannot hold";
    if (!covered_by_rows(entry) && !covered_by_columns(entry)) {
      return "the pieces of " + tensor + " do not cover it, each element once";
    }
    for (auto const& p : entry.pieces) {
      if (p.size() == 0) continue;
      if (p.offset < 0 || p.offset > total - p.size()) {
        return "a piece of " + tensor + " at offset " + std::to_string(p.offset) +
               " lies outside the flat datasets of " + std::to_string(total) + " elements";
      }
      places.push_back({p.offset, p.offset + p.size(), &entry.name});
    }
  }
  std::ranges::sort(places, {}, &Place::begin);
  auto const overlap =
      std::ranges::adjacent_find(places, [](Place const& a, Place const& b) { return a.end > b.begin; });
  if (overlap == places.end()) return {};
  return "pieces of tensors '" + *overlap->name + "' and '" + *(overlap + 1)->name + "' overlap in the flat datasets";
}

void add_view(hid_t group, CheckpointIndexEntry const& entry, std::uint64_t total) {
  std::lock_guard const lock(hdf5_mutex());
  std::vector<hsize_t> const shape(entry.shape.begin(), entry.shape.end());
  hsize_t const all = total;
  hdf5::Dataspace const view(
      check_hdf5(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), "make a view"));
  hdf5::Dataspace const source(check_hdf5(H5Screate_simple(1, &all, nullptr), "make a view"));
  hdf5::PropertyList const layout(check_hdf5(H5Pcreate(H5P_DATASET_CREATE), "make a view"));
  check_hdf5(H5Pset_obj_track_times(layout.get(), false), "make a view");
  auto const dataset = std::string("/flat/") + weights_dataset;
  for (auto const& p : entry.pieces) {
    if (p.size() == 0) continue;
    std::vector<hsize_t> start{static_cast<hsize_t>(p.first_row), static_cast<hsize_t>(p.first_column)};
    std::vector<hsize_t> count{static_cast<hsize_t>(p.rows), static_cast<hsize_t>(p.columns)};
    start.resize(shape.size());
    count.resize(shape.size());
    select(view, start, count);
    select(source, {static_cast<hsize_t>(p.offset)}, {static_cast<hsize_t>(p.size())});
    check_hdf5(H5Pset_virtual(layout.get(), view.get(), ".", dataset.c_str(), source.get()), "make a view");
  }
  hdf5::Dataset(check_hdf5(
      H5Dcreate2(group, entry.name.c_str(), H5T_NATIVE_FLOAT, view.get(), H5P_DEFAULT, layout.get(), H5P_DEFAULT),
      ("make view '" + entry.name + "' in").c_str(), group));
}

}  // namespace isotrain::io
