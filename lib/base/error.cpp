#include "lib/base/error.h"

namespace isotrain {
namespace {

std::string compose(std::string const& problem, std::string const& why, std::string const& hint) {
  std::string message = problem;
  if (!why.empty()) message += " (" + why + ")";
  if (!hint.empty()) message += "; " + hint;
  return message;
}

}  // namespace

Error::Error(std::string const& problem, std::string const& why, std::string const& hint, int exit_code)
    : std::runtime_error(compose(problem, why, hint)), exit_code_(exit_code) {}

void expects(bool condition, char const* what, std::source_location where) {
  if (condition) return;
  throw std::logic_error(std::string(where.file_name()) + ":" + std::to_string(where.line()) + ": " +
                         where.function_name() + " expects " + what);
}

}  // namespace isotrain
