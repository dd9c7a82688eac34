#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lathe/driver/executable.h"
#include "lathe/support/error.h"

/// The official ONNX backend cases: folders with `model.onnx` and `test_data_set_*/input_*.pb,
/// output_*.pb` (https://github.com/onnx/onnx/tree/main/onnx/backend/test).
namespace lathe {

enum class CaseOutcome : uint8_t {
  kPassed,
  kFailed,   ///< ran and gave something else, or failed where it should run
  kRefused,  ///< the model needs something that is not supported, and the error says what
};
std::string_view Name(CaseOutcome outcome);

struct CaseResult {
  std::string name;   ///< last part of the folder, "test_abs"
  std::string group;  ///< the part before it, "node"
  std::string path;
  std::vector<std::string> operators;  ///< of the model, sorted, "Conv" or "com.acme.Foo"
  int opset = 0;                       ///< of the default domain, else of the first one imported
  CaseOutcome outcome = CaseOutcome::kFailed;
  std::string id;      ///< of the error, or conformance/mismatch, /timeout, /crash
  std::string reason;  ///< first line for a person
  double seconds = 0;
};

struct ConformanceOptions {
  std::string filter{};    ///< regular expression that part of "group/name" must match
  double time_limit = 60;  ///< seconds per case
  uint64_t memory_limit = uint64_t{8} << 30;  ///< bytes per case
  /// Each program is printed, parsed, exported and imported again before it runs.
  bool round_trip = false;
  bool interpret = false;       ///< run by the interpreter, not compiled
  CompileOptions compile = {};  ///< without `interpret`
  /// Compiled programs run in each way (every_way.h), which must give the same bits.
  bool every_way = false;
  int jobs = 0;  ///< cases at a time; 0: one per processor
  /// Called as each case ends, in the order of the list: done, total.
  std::function<void(const CaseResult&, size_t done, size_t total)> progress{};
};

struct ConformanceReport {
  std::vector<CaseResult> cases;  ///< sorted by group, then name
  size_t passed = 0;
  size_t failed = 0;
  size_t refused = 0;

  /// Tables by group, opset and operator, failures and refusals with reasons, and last
  /// "N passed, N failed, N refused".
  std::string ToText(bool list_cases = false) const;
  std::string ToJson() const;
};

/// The case folders at or below `directories`, sorted. Errors: io/open, conformance/no-cases.
std::vector<std::string> FindCases(const std::vector<std::string>& directories);

/// Runs every case, compiled or through the interpreter, each in a process of its own, so that one
/// that crashes, hangs or takes too much memory fails alone.
ConformanceReport RunConformance(const std::vector<std::string>& directories,
                                 const ConformanceOptions& options = {});

/// Runs one case in this process.
CaseResult RunCase(const std::string& directory, const ConformanceOptions& options = {});

}  // namespace lathe
