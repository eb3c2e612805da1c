#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/program.h"

namespace isotrain::test {

/// Lines of `text` that begin with `word`.
inline std::vector<std::string> lines_with(std::string const& word, std::string const& text) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(word)) found.push_back(line);
  }
  return found;
}

/// A program ended as one should: one error, whatever the number of ranks, that says all of `fragments`.
inline void expect_one_error(ProgramResult const& result, int exit_code, std::vector<std::string> const& fragments) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  auto const errors = lines_with("error", result.err);
  ASSERT_EQ(errors.size(), 1U) << result.err;
  for (auto const& fragment : fragments) {
    EXPECT_NE(errors[0].find(fragment), std::string::npos) << "'" << fragment << "' is not in: " << errors[0];
  }
  EXPECT_EQ(errors[0].find("internal"), std::string::npos) << errors[0];
}

/// A program did what it was asked to, and had nothing to say about it.
inline void expect_success(ProgramResult const& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
}

}  // namespace isotrain::test
