#pragma once

#include "lathe/runtime/plan.h"
#include "lathe/support/error.h"

namespace lathe::runtime {

/// An error of a plan: a bug of whoever made it, or a damaged file.
template <class... Args>
Error PlanError(const char* id, const Args&... message) {
  return {ErrorCode::kVerify, id, StrCat(message...)};
}

/// Throws plan/... unless every index is in range, every dim is made of the plan's symbols, every
/// step finds its storages alive, and storages of known size that are alive together do not
/// overlap. Whether values lie within what holds them depends on the symbols; see Placements.
void CheckPlan(const Plan& plan, size_t num_kernels);

/// Throws run/processor unless this machine has all of PlanCode::features.
void CheckProcessor(const PlanCode& code);

}  // namespace lathe::runtime
