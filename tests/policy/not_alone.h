#pragma once

/// Does not compile alone, since <vector> is missing: shows that the test of headers can fail.
std::vector<int> not_alone();
