#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace isotrain {

/// Something outside the program said no: a file, the user's input, a library, another rank.
///
/// A message has up to three parts, "problem (why it is one); hint":
///   "tokens in 'x.h5' end early (header says 4096, file has 4000); was the copy interrupted?"
/// `exit_code` is what the program ends with: 1 failed, 2 wrong usage.
class Error : public std::runtime_error {
 public:
  explicit Error(std::string const& message, int exit_code = 1) : std::runtime_error(message), exit_code_(exit_code) {}
  Error(std::string const& problem, std::string const& why, std::string const& hint = {}, int exit_code = 1);

  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

/// Wrong usage: unknown or contradictory settings. Exit code 2.
class UsageError : public Error {
 public:
  explicit UsageError(std::string const& message) : Error(message, 2) {}
  UsageError(std::string const& problem, std::string const& why, std::string const& hint = {})
      : Error(problem, why, hint, 2) {}
};

/// A contract between two pieces of our own code was broken. Always checked; throws std::logic_error.
void expects(bool condition, char const* what, std::source_location where = std::source_location::current());

}  // namespace isotrain
