// Products of many groups in one parallel region: every thread walks all groups and does its part of each.
#include <algorithm>

#include "kernels/cpu/matmul_part.h"
#include "kernels/matmul.h"
#include "lib/base/error.h"

namespace isotrain::kernels {
namespace {

/// The rows of group [begin, end) that part `index` of `parts` of all rows does; cut at whole tiles from the group's
/// first row.
gemm::Range rows_of_part(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last, int parts,
                         int index, std::int64_t unit) {
  auto const cut = [&](int i) {
    std::int64_t const ideal = first + (last - first) * i / parts;
    if (ideal <= begin) return std::int64_t{0};
    return std::min(end - begin, (ideal - begin + unit / 2) / unit * unit);
  };
  return {cut(index), index + 1 == parts ? end - begin : cut(index + 1)};
}

/// C_g = A_g * B_g, where make_b(g) is B_g.
template <class T, class Out, class MakeB>
void multiply_groups(Cpu const& at, Matrix<Out> c, Matrix<T const> a, std::span<std::int64_t const> offsets,
                     MakeB const& make_b) {
  auto const groups = static_cast<std::int64_t>(offsets.size()) - 1;
  expects(groups >= 0 && std::is_sorted(offsets.begin(), offsets.end()), "offsets of groups ascend");
  expects(offsets.front() >= 0 && offsets.back() <= c.rows && offsets.back() <= a.rows, "groups lie in A and C");
  std::int64_t const rows = offsets.back() - offsets.front();
  if (rows == 0 || c.cols == 0) return;
  struct {
    Matrix<Out> c;
    Matrix<T const> a;
    std::span<std::int64_t const> offsets;
    MakeB const& make_b;
    gemm::TileShape tile;
    gemm::Grid grid;
    Bf16Class bf16;
  } job{c, a, offsets, make_b, gemm::tile_shape<T>(at.bf16_class()), {}, at.bf16_class()};
  job.grid = gemm::choose_grid(at.threads(), job.tile, rows, c.cols, a.cols, groups);
  at.parallel_for(job.grid.parts(), 1, [&job](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      auto const cols = gemm::cut(job.c.cols, job.grid.cols, static_cast<int>(part) % job.grid.cols, job.tile.cols);
      for (std::size_t g = 0; g + 1 < job.offsets.size(); ++g) {
        std::int64_t const first = job.offsets[g];
        std::int64_t const last = job.offsets[g + 1];
        auto const range = rows_of_part(first, last, job.offsets.front(), job.offsets.back(), job.grid.rows,
                                        static_cast<int>(part) / job.grid.cols, job.tile.rows);
        if (range.size() <= 0) continue;
        Product<T> const product{job.a.slice_rows(first, last - first), job.make_b(g)};
        gemm::Sum<T, Out> const sum{job.c.slice_rows(first, last - first), {&product, 1}, {{&job.a.cols, 1}}};
        gemm::multiply_part(sum, range, cols, job.bf16);
      }
    }
  });
}

}  // namespace

template <class T, class Out>
void grouped_matmul(Cpu const& at, Matrix<Out> c, Matrix<T const> a, std::span<T const* const> weights,
                    std::span<std::int64_t const> offsets) {
  expects(offsets.size() == weights.size() + 1, "one weight matrix for each group");
  auto const weight = [&](std::size_t g) { return Matrix<T const>(weights[g], c.cols, a.cols).transposed(); };
  multiply_groups(at, c, a, offsets, weight);
}

template <class T, class Out>
void grouped_matmul_input(Cpu const& at, Matrix<Out> da, Matrix<T const> dc, std::span<T const* const> weights,
                          std::span<std::int64_t const> offsets) {
  expects(offsets.size() == weights.size() + 1, "one weight matrix for each group");
  auto const weight = [&](std::size_t g) { return Matrix<T const>(weights[g], dc.cols, da.cols); };
  multiply_groups(at, da, dc, offsets, weight);
}

template <class T>
void grouped_matmul_weight(Cpu const& at, std::span<float* const> dw, Matrix<T const> dc, Matrix<T const> a,
                           std::span<std::int64_t const> offsets, int segments) {
  expects(segments >= 0 && offsets.size() == dw.size() * static_cast<std::size_t>(segments) + 1,
          "one run of rows for each group and segment");
  expects(std::is_sorted(offsets.begin(), offsets.end()) && offsets.front() >= 0 && offsets.back() <= dc.rows &&
              offsets.back() <= a.rows,
          "runs of rows ascend and lie in A and dC");
  std::int64_t const rows = offsets.back() - offsets.front();
  if (rows == 0 || dc.cols == 0 || a.cols == 0) return;
  struct {
    std::span<float* const> dw;
    Matrix<T const> dc;
    Matrix<T const> a;
    std::span<std::int64_t const> offsets;
    std::size_t segments;
    gemm::TileShape tile;
    gemm::Grid grid;
    Bf16Class bf16;
  } job{dw,
        dc,
        a,
        offsets,
        static_cast<std::size_t>(segments),
        gemm::tile_shape<T>(at.bf16_class()),
        {},
        at.bf16_class()};
  job.grid = gemm::choose_grid(at.threads(), job.tile, dc.cols, a.cols, rows);
  at.parallel_for(job.grid.parts(), 1, [&job](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      auto const out_rows =
          gemm::cut(job.dc.cols, job.grid.rows, static_cast<int>(part) / job.grid.cols, job.tile.rows);
      auto const out_cols = gemm::cut(job.a.cols, job.grid.cols, static_cast<int>(part) % job.grid.cols, job.tile.cols);
      for (std::size_t g = 0; g < job.dw.size(); ++g) {
        auto const runs = job.offsets.subspan(g * job.segments, job.segments + 1);
        std::int64_t const group_rows = runs.back() - runs.front();
        if (group_rows == 0) continue;
        Product<T> const product{job.dc.slice_rows(runs.front(), group_rows).transposed(),
                                 job.a.slice_rows(runs.front(), group_rows)};
        gemm::Sum<T, float> const sum{Matrix<float>(job.dw[g], job.dc.cols, job.a.cols),
                                      {&product, 1},
                                      {.lengths = {&group_rows, 1}, .segments = runs},
                                      true};
        gemm::multiply_part(sum, out_rows, out_cols, job.bf16);
      }
    }
  });
}

template void grouped_matmul(Cpu const&, Matrix<float>, Matrix<float const>, std::span<float const* const>,
                             std::span<std::int64_t const>);
template void grouped_matmul(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, std::span<bfloat16 const* const>,
                             std::span<std::int64_t const>);
template void grouped_matmul(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>, std::span<bfloat16 const* const>,
                             std::span<std::int64_t const>);
template void grouped_matmul_input(Cpu const&, Matrix<float>, Matrix<float const>, std::span<float const* const>,
                                   std::span<std::int64_t const>);
template void grouped_matmul_input(Cpu const&, Matrix<float>, Matrix<bfloat16 const>, std::span<bfloat16 const* const>,
                                   std::span<std::int64_t const>);
template void grouped_matmul_input(Cpu const&, Matrix<bfloat16>, Matrix<bfloat16 const>,
                                   std::span<bfloat16 const* const>, std::span<std::int64_t const>);
template void grouped_matmul_weight(Cpu const&, std::span<float* const>, Matrix<float const>, Matrix<float const>,
                                    std::span<std::int64_t const>, int);
template void grouped_matmul_weight(Cpu const&, std::span<float* const>, Matrix<bfloat16 const>, Matrix<bfloat16 const>,
                                    std::span<std::int64_t const>, int);

}  // namespace isotrain::kernels
