// The only intrinsics of the matrix product and of attention. Compiled for its own instruction sets, whatever the rest
// is compiled for.
#include "kernels/cpu/matmul_amx.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>

// GCC 12's own header initialises "undefined" vectors with themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16")

namespace isotrain::kernels::gemm::amx {
namespace {

struct alignas(64) Configuration {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr std::int64_t tile_elements = tile * block;

/// 16 x 16 pairs of bf16.
struct Square {
  __m512i row[16];
};

[[gnu::always_inline]] inline void transpose(Square& x) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(x.row[i], x.row[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(x.row[i], x.row[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    x.row[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    x.row[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    x.row[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    x.row[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    int const from = i / 4 * 8 + i % 4;
    t[from] = _mm512_shuffle_i32x4(x.row[from], x.row[from + 4], 0x88);
    t[from + 4] = _mm512_shuffle_i32x4(x.row[from], x.row[from + 4], 0xdd);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x.row[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    x.row[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    x.row[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    x.row[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
  }
}

/// K contiguous: row[i] is vector i, its pairs ascending. Vectors that are missing repeat the last.
[[gnu::always_inline]] inline Square load_vectors(bfloat16 const* data, std::int64_t stride, std::int64_t count,
                                                  std::int64_t steps) {
  Square x;
  __mmask32 const mask = steps >= block ? ~__mmask32{0} : static_cast<__mmask32>((std::uint32_t{1} << steps) - 1);
#pragma GCC unroll 16
  for (std::int64_t i = 0; i < 16; ++i)
    x.row[i] = _mm512_maskz_loadu_epi16(mask, data + std::min(i, count - 1) * stride);
  return x;
}

/// Vectors side by side: row[p] is pair p of all of them.
[[gnu::always_inline]] inline Square load_pairs(bfloat16 const* data, std::int64_t k_stride, std::int64_t count,
                                                std::int64_t steps) {
  Square x;
  auto const mask = static_cast<__mmask16>(count >= tile ? 0xffff : (1U << count) - 1);
  auto const step = [&](std::int64_t k) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(k < steps ? mask : __mmask16{0}, data + k * k_stride));
  };
#pragma GCC unroll 16
  for (std::int64_t p = 0; p < 16; ++p) {
    x.row[p] = _mm512_or_si512(step(2 * p), _mm512_slli_epi32(step(2 * p + 1), 16));
  }
  return x;
}

/// Any strides, by way of a copy.
Square load_strided(Strip<bfloat16> const& strip, std::int64_t count, std::int64_t steps) {
  alignas(64) bfloat16 copy[tile_elements] = {};
  for (std::int64_t i = 0; i < std::min(count, tile); ++i) {
    for (std::int64_t k = 0; k < std::min(steps, block); ++k) {
      copy[i * block + k] = strip.data[i * strip.stride + k * strip.k_stride];
    }
  }
  return load_vectors(copy, block, tile, block);
}

[[gnu::always_inline]] inline __m512 widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

enum class Form { vectors, pairs };

/// Packs one tile of up to 16 vectors and 32 steps.
template <Form form>
[[gnu::always_inline]] inline void pack_tile(bfloat16* to, Strip<bfloat16> const& strip, std::int64_t steps) {
  Square x;
  bool by_vectors = true;
  if (strip.k_stride == 1) {
    x = load_vectors(strip.data, strip.stride, strip.count, steps);
  } else if (strip.stride == 1) {
    x = load_pairs(strip.data, strip.k_stride, strip.count, steps);
    by_vectors = false;
  } else {
    x = load_strided(strip, strip.count, steps);
  }
  if (by_vectors != (form == Form::vectors)) transpose(x);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * block, x.row[i]);
}

template <Form form>
void pack(bfloat16* panel, Strip<bfloat16> strip, std::int64_t steps) {
  for (std::int64_t k = 0; k < steps; k += block, panel += 2 * tile_elements) {
    Strip<bfloat16> half = strip;
    half.data += k * strip.k_stride;
    pack_tile<form>(panel, half, steps - k);
    half.data += tile * strip.stride;
    half.count -= tile;
    if (half.count > 0) pack_tile<form>(panel + tile_elements, half, steps - k);
  }
}

// Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B.
[[gnu::always_inline]] inline void multiply_tiles(bfloat16 const* a, bfloat16 const* b, std::int64_t steps,
                                                  std::int64_t rows, std::int64_t cols, TileInOut c, Next next) {
  bool const low = rows > tile;
  bool const right = cols > tile;
  std::int64_t const in_bytes = c.in_stride * 4;
  std::int64_t const out_bytes = c.out_stride * 4;
  if (c.in) {
    _tile_loadd(0, c.in, in_bytes);
    if (right) _tile_loadd(1, c.in + tile, in_bytes);
    if (low) _tile_loadd(2, c.in + tile * c.in_stride, in_bytes);
    if (low && right) _tile_loadd(3, c.in + tile * c.in_stride + tile, in_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  bfloat16 const* const end = a + steps * 2 * tile;
  std::int64_t const fetches = std::max<std::int64_t>(next.lines() * block / steps, 1);
  if (low && right) {
    for (; a != end; a += 2 * tile_elements, b += 2 * tile_elements) {
      for (std::int64_t i = 0; i < fetches; ++i) next.fetch();
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + tile_elements, 64);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + tile_elements, 64);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  } else {
    for (; a != end; a += 2 * tile_elements, b += 2 * tile_elements) {
      for (std::int64_t i = 0; i < fetches; ++i) next.fetch();
      _tile_loadd(6, b, 64);
      _tile_loadd(4, a, 64);
      _tile_dpbf16ps(0, 4, 6);
      if (right) {
        _tile_loadd(7, b + tile_elements, 64);
        _tile_dpbf16ps(1, 4, 7);
      }
      if (low) {
        _tile_loadd(5, a + tile_elements, 64);
        _tile_dpbf16ps(2, 5, 6);
      }
    }
  }
  _tile_stored(0, c.out, out_bytes);
  if (right) _tile_stored(1, c.out + tile, out_bytes);
  if (low) _tile_stored(2, c.out + tile * c.out_stride, out_bytes);
  if (low && right) _tile_stored(3, c.out + tile * c.out_stride + tile, out_bytes);
}

}  // namespace

TileConfiguration::TileConfiguration() {
  Configuration const configuration;
  // Not GCC's intrinsic: that one says that it reads eight bytes only, and is not inlined here.
  asm volatile("ldtilecfg %0" ::"m"(configuration));
}
TileConfiguration::~TileConfiguration() {
  asm volatile("tilerelease");
}

void pack_rows(bfloat16* panel, Strip<bfloat16> const& rows, std::int64_t steps) {
  pack<Form::vectors>(panel, rows, steps);
}
void pack_cols(bfloat16* panel, Strip<bfloat16> const& cols, std::int64_t steps) {
  pack<Form::pairs>(panel, cols, steps);
}

void multiply(bfloat16 const* a, bfloat16 const* b, std::int64_t steps, std::int64_t rows, std::int64_t cols,
              TileInOut c, Next next) {
  multiply_tiles(a, b, steps, rows, cols, c, next);
}
void multiply(float* c, std::int64_t stride, bfloat16 const* a, bfloat16 const* b, std::int64_t steps,
              std::int64_t rows, std::int64_t cols, Accumulate accumulate) {
  multiply_tiles(a, b, steps, rows, cols, {accumulate == Accumulate::yes ? c : nullptr, stride, c, stride}, {});
}

void round_rows(bfloat16* panel, float const* elements) {
  for (std::int64_t r = 0; r < 2 * tile; ++r, panel += block, elements += 2 * tile) {
    __m512bh const row = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(elements + tile), _mm512_loadu_ps(elements));
    _mm512_storeu_si512(panel, reinterpret_cast<__m512i>(row));
  }
}

void round_cols(bfloat16* panel, float const* elements) {
  // Pair i is element i of the even step and, sixteen elements on, element i of the odd one.
  __m512i const index = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i const interleaved =
      _mm512_or_si512(index, _mm512_slli_epi32(_mm512_add_epi32(index, _mm512_set1_epi32(16)), 16));
  for (std::int64_t pair = 0; pair < 16; ++pair, panel += block, elements += 4 * tile) {
    for (std::int64_t half = 0; half < 2; ++half) {
      float const* const first = elements + half * tile;
      __m512bh const steps = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(first + 2 * tile), _mm512_loadu_ps(first));
      _mm512_storeu_si512(panel + half * tile_elements,
                          _mm512_permutexvar_epi16(interleaved, reinterpret_cast<__m512i>(steps)));
    }
  }
}

void transpose(float* out, std::int64_t out_stride, Matrix<float const> in) {
  for (std::int64_t r = 0; r < in.rows; r += tile) {
    for (std::int64_t c = 0; c < in.cols; c += tile) {
      Square x;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) x.row[i] = _mm512_loadu_si512(in.row(r + i) + c);
      transpose(x);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + (c + i) * out_stride + r, x.row[i]);
    }
  }
}

void finish(float const* tile_of_c, Matrix<bfloat16> c, Matrix<bfloat16 const> residual) {
  auto const mask = static_cast<__mmask32>(c.cols >= 2 * tile ? ~0U : (1U << c.cols) - 1);
  for (std::int64_t r = 0; r < c.rows; ++r, tile_of_c += 2 * tile) {
    __m512 left = _mm512_loadu_ps(tile_of_c);
    __m512 right = _mm512_loadu_ps(tile_of_c + tile);
    if (residual.data) {
      __m512i const add = _mm512_maskz_loadu_epi16(mask, residual.row(r));
      left = _mm512_add_ps(left, widen(_mm512_castsi512_si256(add)));
      right = _mm512_add_ps(right, widen(_mm512_extracti64x4_epi64(add, 1)));
    }
    _mm512_mask_storeu_epi16(c.row(r), mask, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(right, left)));
  }
}

}  // namespace isotrain::kernels::gemm::amx

#pragma GCC pop_options
#endif
