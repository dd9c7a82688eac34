#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::testing {

/// One line of a random program: what it does and to which values follows from these numbers, each
/// taken modulo what there is to choose from. So any list of statements is a program, and a list
/// with some left out is a smaller one.
using Statement = std::array<uint32_t, 6>;

std::vector<Statement> RandomStatements(uint64_t seed, size_t count);

/// The text of a program over mutable tensors: copies, views of views, in-place ops and overwrites
/// through them, lists, and `cf.if`, `cf.while` and `cf.scan` that read and write what is outside.
/// Inputs "x0", "x1" (mutable, written or not), "v0", "v1" and "c"; outputs "y0", "y1", ... read at
/// random places.
std::string MutableProgram(const std::vector<Statement>& statements);

}  // namespace lathe::testing
