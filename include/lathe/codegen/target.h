#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::codegen {

/// A machine that code is made for: an instruction set of a processor family.
struct Target {
  std::string name;      ///< "avx512"
  std::string triple;    ///< as LLVM spells it; empty: the host's
  std::string cpu;       ///< processor whose features and timings hold
  std::string features;  ///< more features: "+fma,-avx512f"
  int vector_bytes = 16;
  int vector_registers = 16;
  bool has_fma = false;
  bool converts_f16 = false;  ///< has instructions between f16 and f32
  bool rounds = false;        ///< has instructions that round to integers
  /// What the processor must have, beyond its family, by the names of /proc/cpuinfo.
  std::vector<std::string> processor_flags = {};

  /// Whether it has registers for tiles of the loop dialect, and instructions that multiply them.
  bool has_tiles() const;
  /// Whether it multiplies groups of bytes and adds them up in one instruction (loop.dot).
  bool has_dots() const;
  /// Whether it rounds f32 to bf16, and multiplies pairs of these and adds them up, in one
  /// instruction each (loop.narrow, loop.dot_pairs).
  bool has_bf16() const;
  /// Whether registers of 64 bytes are permuted by words, and by bytes.
  bool permutes_words() const;
  bool permutes_bytes() const;
  /// Elements of `element_bytes` bytes in one vector.
  int lanes(int element_bytes) const { return vector_bytes / element_bytes; }

  /// The best one that this machine can run.
  static const Target& Host();
  /// By name; an unknown one is an error (codegen/target) with the nearest names.
  static const Target& Named(std::string_view name);
  /// All, from the plainest to the best of each family.
  static const std::vector<Target>& All();
  /// Whether this machine can run code for the target.
  bool RunsHere() const;
};

}  // namespace lathe::codegen
