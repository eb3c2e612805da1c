#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace isotrain {

/// Reads fields of one JSON object and collects what is wrong with them, so that one message can name everything. A
/// getter that finds a problem notes it and returns something harmless.
class JsonFields {
 public:
  /// `prefix` goes before names in problems ("rope_scaling."). `object` and `problems` outlive this.
  JsonFields(nlohmann::json const& object, std::vector<std::string>& problems, std::string prefix = {})
      : object_(object), problems_(problems), prefix_(std::move(prefix)) {}

  void problem(std::string const& name, std::string const& what) { problems_.push_back(prefix_ + name + " " + what); }
  /// True if the field is there and not null.
  bool has(std::string const& name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  nlohmann::json const& raw(std::string const& name) const { return object_.at(name); }

  /// An integer of at least `least`; missing is a problem unless there is a fallback.
  std::int64_t integer(std::string const& name, std::int64_t least, std::optional<std::int64_t> fallback = {});
  /// The same where null means `none`; missing is a problem.
  std::int64_t integer_or_null(std::string const& name, std::int64_t least, std::int64_t none);
  /// A number above `above`.
  double number(std::string const& name, double above, std::optional<double> fallback = {});
  bool boolean(std::string const& name, bool fallback);
  std::string text(std::string const& name, std::string const& fallback);
  /// Notes a problem if the field is there and is not `only`.
  void must_be(std::string const& name, nlohmann::json const& only);

 private:
  nlohmann::json const& object_;
  std::vector<std::string>& problems_;
  std::string prefix_;
};

}  // namespace isotrain
