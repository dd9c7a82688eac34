#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lathe::testing {

/// A graph that showed something, as reported.
struct ReportedFinding {
  uint64_t seed = 0;
  std::string kind;  ///< the same cause, often
  std::string text;
};

/// Counts over all graphs.
class DifferentialTally {
 public:
  void AddPassed() { ++passed_; }
  /// Shows it at once.
  void AddFinding(const ReportedFinding& finding);
  void AddCoverage(const std::string& line) { ++coverage_[line]; }
  size_t done() const { return passed_ + failed_; }
  size_t failed() const { return failed_; }

  /// Tables of what was covered and found, and "N passed, N failed" last; the exit code.
  int Report(double seconds, const std::vector<std::string>& all_ops) const;

 private:
  void ReportOps(const std::vector<std::string>& all_ops) const;
  void ReportTable(const std::string& title, const std::string& prefix) const;

  size_t passed_ = 0, failed_ = 0;
  std::map<std::string, size_t> coverage_;
  std::map<std::string, std::vector<uint64_t>> kinds_;
};

}  // namespace lathe::testing
