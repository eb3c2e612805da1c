#pragma once

#include <hwy/highway.h>

#include <cstddef>

namespace isotrain::kernels {

/// Index of the chosen instruction set in a table of HWY_CHOOSE_TARGET_LIST; chooses it at the first call.
inline std::size_t chosen_target() {
  auto& chosen = hwy::GetChosenTarget();
  if (!chosen.IsInitialized()) chosen.Update(hwy::SupportedTargets());
  return chosen.GetIndex();
}

}  // namespace isotrain::kernels

/// The form of FUNCTION for the chosen instruction set, as a function pointer. HWY_EXPORT and HWY_DYNAMIC_DISPATCH in
/// one, for functions that may be instances of templates, `row_sums<T>`, which this Highway's macros cannot name. To be
/// used in the HWY_ONCE part of a file, in the namespace that encloses HWY_NAMESPACE.
#define ISOTRAIN_DISPATCH(FUNCTION)                                                                                 \
  [] {                                                                                                              \
    static constexpr decltype(&HWY_STATIC_DISPATCH(FUNCTION)) forms[] = {nullptr, HWY_CHOOSE_TARGET_LIST(FUNCTION), \
                                                                         HWY_CHOOSE_FALLBACK(FUNCTION)};            \
    return forms[::isotrain::kernels::chosen_target()];                                                             \
  }()
