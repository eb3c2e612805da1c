#include "lib/model/json_fields.h"

#include <limits>
#include <sstream>

namespace isotrain {

std::int64_t JsonFields::integer(std::string const& name, std::int64_t least, std::optional<std::int64_t> fallback) {
  if (!has(name)) {
    if (!fallback) problem(name, "is missing");
    return fallback.value_or(least);
  }
  auto const& value = raw(name);
  if (!value.is_number_integer()) {
    problem(name, "is " + value.dump() + ", not an integer");
    return least;
  }
  auto const number = value.get<std::int64_t>();
  if (number < least || number > std::numeric_limits<std::int32_t>::max()) {
    problem(name, "is " + value.dump() + ", must be at least " + std::to_string(least) + " and below 2^31");
    return least;
  }
  return number;
}

std::int64_t JsonFields::integer_or_null(std::string const& name, std::int64_t least, std::int64_t none) {
  if (!object_.contains(name)) problem(name, "is missing (null if there is none)");
  return integer(name, least, none);
}

double JsonFields::number(std::string const& name, double above, std::optional<double> fallback) {
  if (!has(name)) {
    if (!fallback) problem(name, "is missing");
    return fallback.value_or(above);
  }
  auto const& value = raw(name);
  if (!value.is_number()) {
    problem(name, "is " + value.dump() + ", not a number");
    return above;
  }
  if (!(value.get<double>() > above)) {
    std::ostringstream bound;
    bound << above;
    problem(name, "is " + value.dump() + ", must be above " + bound.str());
    return above;
  }
  return value.get<double>();
}

bool JsonFields::boolean(std::string const& name, bool fallback) {
  if (!has(name)) return fallback;
  if (!raw(name).is_boolean()) {
    problem(name, "is " + raw(name).dump() + ", neither true nor false");
    return fallback;
  }
  return raw(name).get<bool>();
}

std::string JsonFields::text(std::string const& name, std::string const& fallback) {
  if (!has(name)) return fallback;
  if (!raw(name).is_string()) {
    problem(name, "is " + raw(name).dump() + ", not a text");
    return fallback;
  }
  return raw(name).get<std::string>();
}

void JsonFields::must_be(std::string const& name, nlohmann::json const& only) {
  if (has(name) && raw(name) != only) {
    problem(name, "is " + raw(name).dump() + ", only " + only.dump() + " is supported");
  }
}

}  // namespace isotrain
