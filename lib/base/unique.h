#pragma once

#include <utility>

namespace isotrain {

/// Owns one foreign handle (HDF5 id, MPI communicator, CUDA stream, ...): no copy, moves by swap, releases in the
/// destructor. `close` must not throw; `empty` is the value that owns nothing.
template <class Handle, auto close, auto empty = Handle{}>
class Unique {
 public:
  Unique() = default;
  explicit Unique(Handle handle) : handle_(handle) {}
  Unique(Unique&& other) noexcept { swap(other); }
  Unique& operator=(Unique&& other) noexcept {
    Unique(std::move(other)).swap(*this);
    return *this;
  }
  Unique(Unique const&) = delete;
  Unique& operator=(Unique const&) = delete;
  ~Unique() {
    if (handle_ != static_cast<Handle>(empty)) close(handle_);
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != static_cast<Handle>(empty); }
  void swap(Unique& other) noexcept { std::swap(handle_, other.handle_); }

 private:
  Handle handle_ = static_cast<Handle>(empty);
};

}  // namespace isotrain
