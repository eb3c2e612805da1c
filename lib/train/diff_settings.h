#pragma once

#include <string>
#include <vector>

namespace isotrain {

/// What a setting of `train` decides: the envelope and the rest of the computation change the bits, a layout never
/// does.
enum class SettingKind { envelope, computation, layout };

/// Settings that nobody has classified count as computation.
SettingKind kind_of_setting(std::string const& name);

struct SettingDifference {
  std::string name;
  std::string first;
  std::string second;
  SettingKind kind = SettingKind::computation;

  bool operator==(SettingDifference const&) const = default;
};

/// The settings in which two run.cfg texts differ, in the order of `train --help`, those that this version does not
/// know last. A setting that a text lacks has its default. Paths are the same if what they name is: the bytes of
/// model.config, or of the corpus.json in data.corpus. Throws UsageError for malformed text; `first_source` and
/// `second_source` name it.
std::vector<SettingDifference> compare_settings(std::string const& first, std::string const& first_source,
                                                std::string const& second, std::string const& second_source);

}  // namespace isotrain
