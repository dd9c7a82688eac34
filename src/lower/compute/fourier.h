#pragma once

#include <functional>
#include <string>

#include "src/lower/compute/compute.h"

namespace lathe::lower {

/// A complex number as two scalars of f64.
struct Complex {
  Value real, imaginary;
};

/// Writes loops for out[k] = sum over t of exp(sign 2 pi i k t / n) in[t], k and t below `n`, for
/// each of `lines` lines.
class FourierTransforms {
 public:
  using Source = std::function<Complex(const Dim& line, const Dim& t)>;
  using Sink = std::function<void(const Dim& line, const std::function<Complex(const Dim& k)>&)>;

  FourierTransforms(const WholeTensorEmitter& w, const Dim& lines, const Dim& n, int sign)
      : w_(w), lines_(lines), n_(n), sign_(sign) {}

  /// `to` is called with a line whose results may be asked for.
  void Write(const Source& from, const Sink& to);

  /// Why there are none of that length; empty if there are. A length that is not known is not
  /// looked at.
  static std::string Refusal(const Dim& n);

 private:
  const WholeTensorEmitter& w_;
  Dim lines_, n_;
  int sign_;
};

}  // namespace lathe::lower
