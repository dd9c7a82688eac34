#pragma once

#include <string>
#include <vector>

#include "lathe/ir/program.h"
#include "lathe/support/error.h"

namespace lathe {

struct VerifyOptions {
  bool infer_types = true;  ///< run InferShape and compare with the declared types
  size_t max_errors = 20;
  std::string after;  ///< the pass that ran last; named in messages
};

/// Checks everything that the structure promises: dominance, terminators, yields against results,
/// use lists, block arguments, parameter names, declared against inferred types, declarations of
/// ops (operands, attributes, type variables), trait rules. Returns what is wrong, in program
/// order. Takes O(operations), whatever the nesting. Marks blocks: one verification of a program at
/// a time.
std::vector<Error> Verify(const Program& program, const VerifyOptions& options = {});
std::vector<Error> Verify(Operation* op, const VerifyOptions& options = {});
/// Throws the first error with the rest as `others`.
void VerifyOrThrow(const Program& program, const VerifyOptions& options = {});

}  // namespace lathe
