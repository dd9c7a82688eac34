#pragma once

#include <memory>
#include <string>

#include "lathe/runtime/executor.h"
#include "lathe/runtime/plan.h"
#include "lathe/support/buffer.h"

/// A compiled program in three parts, as NNVM's and Relay's `build` give it: the graph, a library
/// of its kernels, its parameters. An .lx file holds the same in one.
///
/// The graph is JSON as graph run times read it: `nodes` ("null": an input or a parameter;
/// "tvm_op": a call of `func_name`, where `__copy` copies and `__nop` only names memory),
/// `arg_nodes`, `node_row_ptr`, `heads`, and `attrs`, where entry i (output k of node n for
/// i = node_row_ptr[n] + k) has
///
///     shape, dltype, storage_id    as always; extents that inputs decide are -1
///     offset                       bytes from the beginning of its storage
///     dims                         "N,4", if there are such extents anywhere
///
/// storage i has storage_place: "input", "output", "parameter", "arena" or "variable", of each in
/// order. A variable is a parameter that calls write; the parameters hold what it is at first. For
/// the i-th in the arena, arena_bytes is its size, arena_begin and arena_end are the calls between
/// which it holds something (counted without __nop), arena_offset is where it lies. `symbols`,
/// symbol_input and symbol_axis say which extents of which inputs decide, `constraints` what must
/// hold of them ("equal": of the two sizes; see PlanConstraint); output_names, target,
/// library (its checksum) and lathe_version speak for themselves.
///
/// The library is a shared object with a symbol per kernel: a KernelFunction
/// (lathe/support/kernel.h). The parameters are a .safetensors file.
namespace lathe::runtime {

struct Artifacts {
  std::string graph;
  std::shared_ptr<Buffer> library;
  /// By the names of the graph. What passes have folded or packed is no more as the model had it.
  NamedTensors parameters;
};

/// The parts of a plan. Errors: artifact/name if a name is not UTF-8, artifact/branch if its steps
/// do not follow one another: a graph cannot say so.
Artifacts MakeArtifacts(const Plan& plan);

/// The plan of the parts. Errors: artifact/graph, artifact/library (damaged; of another build),
/// artifact/parameter (missing, unknown, of another type or shape).
std::shared_ptr<const Plan> PlanOf(const Artifacts& artifacts);

/// Where the parts lie. Those not named lie beside the graph: "a.json", "a.so", "a.safetensors".
struct ArtifactFiles {
  std::string graph;
  std::string library = {};
  std::string parameters = {};
};

/// All three paths.
ArtifactFiles Complete(ArtifactFiles files);

/// In the metadata of parameters: the checksum of the library that they were written with.
inline constexpr const char* kLibraryKey = "lathe.library";

/// All or nothing: on an error, what was there is as before. Errors: io/...,
/// unsupported/safetensors.
void SaveArtifacts(const Artifacts& artifacts, const ArtifactFiles& files);
/// The parameters are views of the mapped file. Errors name the file: io/..., parse/safetensors,
/// artifact/...
Artifacts LoadArtifacts(const ArtifactFiles& files);
/// The plan of the parts in files, and what runs it.
std::shared_ptr<const Plan> LoadPlan(const ArtifactFiles& files);
Executor LoadExecutor(const ArtifactFiles& files, ExecutorOptions options = {});

/// Checks all parts: the plan, and the parameters against the checksum that they were saved with.
/// Parameters from elsewhere have none. Errors as LoadPlan, plan/...
void VerifyArtifacts(const ArtifactFiles& files);

/// The same plan with other constants, for any of them, by name. Errors: artifact/parameter.
std::shared_ptr<const Plan> WithParameters(const Plan& plan, const NamedTensors& parameters);

}  // namespace lathe::runtime
