#pragma once

#include <memory>
#include <string>

#include "lathe/runtime/executor.h"
#include "lathe/runtime/plan.h"
#include "lathe/support/buffer.h"

/// Plans in files (.lx): header, plan, code, constants. Numbers are little-endian.
///
///     0   "LATHE-LX", u32 version, u32 number of sections, u64 bytes of the file,
///         u64 checksum of header and section table (taken with this field 0), 32 bytes of zeros
///     64  per section: u32 kind, u32 0, u64 offset, u64 bytes, u64 checksum
///
/// Sections do not overlap and begin at multiples of 64, constants at one of 4096: they are mapped,
/// not read, and each begins at a multiple of 64. Loading checks the header, the plan and the code,
/// so it takes as long for large weights as for small ones; each constant has a checksum in the
/// plan, which VerifyFile checks. Checksums find damage, not malice: a file holds machine code, so
/// whoever made it is trusted like whoever made a program.
///
/// Errors name the file: io/..., lx/magic, lx/version, lx/truncated, lx/size, lx/checksum,
/// lx/section, lx/plan, lx/constant, limit/....
namespace lathe::runtime {

inline constexpr uint32_t kFileVersion = 12;

/// Whether the path names the graph of a program in three parts (.json; lathe/runtime/artifacts.h),
/// which all functions on paths here take, too.
bool IsGraph(const std::string& path);

/// All or nothing: on an error, what was at `path` is as before.
void SavePlan(const Plan& plan, const std::string& path);
/// The constants are views of the mapped file, which must not be changed in place while they live.
std::shared_ptr<const Plan> LoadPlan(const std::string& path);
/// From memory; `name` is for messages. Constants are views of `bytes` where they are aligned to
/// their elements.
std::shared_ptr<const Plan> LoadPlan(std::shared_ptr<Buffer> bytes, const std::string& name);

/// Loads a program and makes it ready to run; errors of the plan name the file, too.
Executor LoadExecutor(const std::string& path, ExecutorOptions options = {});
Executor LoadExecutor(std::shared_ptr<Buffer> bytes, const std::string& name,
                      ExecutorOptions options = {});

/// Checks all of a file: the plan as an executor would, and the checksums of its constants; reads
/// every byte. Errors as LoadPlan, lx/checksum, plan/...
void VerifyFile(const std::string& path);

}  // namespace lathe::runtime
