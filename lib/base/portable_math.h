#pragma once

/// Elementary functions of doubles that give the same bits on every machine, built from IEEE operations and explicit
/// fused multiply-adds. (libm chooses by processor model and changes between versions.) Subnormal arguments count as 0
/// and results that would be subnormal are 0 (sin(x) = x for tiny x excepted), so that the thread's flush-to-zero mode
/// does not matter. NaN in, NaN out.
namespace isotrain::portable {

/// e^x within 1 ulp; 0 where e^x < 2^-1022, infinity on overflow.
double exp(double x);

/// Natural logarithm within 1 ulp; -infinity at +-0 and subnormals, NaN for negative x.
double log(double x);

/// Sine and cosine within 1 ulp. Requires |x| <= 2^20 (radians); NaN beyond.
double sin(double x);
double cos(double x);

/// x^y within 1.5 ulp for x >= 0: 1 when y = 0 or x = 1; 0^y is 0 or, for y < 0, infinity; subnormal x counts as 0.
/// NaN for negative x.
double pow(double x, double y);

}  // namespace isotrain::portable
