#include "test/differential/tally.h"

#include <algorithm>
#include <cstdio>

#include "lathe/support/text.h"

namespace lathe::testing {

void DifferentialTally::AddFinding(const ReportedFinding& finding) {
  ++failed_;
  kinds_[finding.kind].push_back(finding.seed);
  printf("FAIL seed %llu: %s\n%s\n", static_cast<unsigned long long>(finding.seed),
         finding.kind.c_str(), finding.text.c_str());
  fflush(stdout);
}

void DifferentialTally::ReportTable(const std::string& title, const std::string& prefix) const {
  std::vector<std::pair<size_t, std::string>> rows;
  for (const auto& [line, count] : coverage_) {
    if (line.starts_with(prefix)) rows.emplace_back(count, line.substr(prefix.size()));
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  printf("%zu %s\n", rows.size(), title.c_str());
  for (const auto& [count, line] : rows) printf("%9zu  %s\n", count, line.c_str());
}

void DifferentialTally::ReportOps(const std::vector<std::string>& all_ops) const {
  std::string missing;
  size_t covered = 0;
  for (const std::string& op : all_ops) {
    if (coverage_.contains("op " + op)) {
      ++covered;
    } else {
      missing += (missing.empty() ? "" : ", ") + op;
    }
  }
  printf("%zu of %zu ops occurred%s%s\n", covered, all_ops.size(),
         missing.empty() ? "" : "; not: ", missing.c_str());
}

int DifferentialTally::Report(double seconds, const std::vector<std::string>& all_ops) const {
  ReportTable("ops, graphs with each", "op ");
  ReportTable("strategies taken", "strategy ");
  ReportTable("refusals, with numbers as N", "refused ");
  ReportTable("ops that were interpreted", "interpreted ");
  ReportTable("kinds of graphs", "graph ");
  ReportOps(all_ops);
  printf("%zu kinds of findings\n", kinds_.size());
  for (const auto& [kind, seeds] : kinds_) {
    std::string list;
    for (size_t i = 0; i < std::min<size_t>(seeds.size(), 8); ++i) list += StrCat(" ", seeds[i]);
    printf("%9zu  %s, seeds%s\n", seeds.size(), kind.c_str(), list.c_str());
  }
  printf("%.1f graphs per second\n", static_cast<double>(done()) / std::max(seconds, 1e-3));
  printf("%zu passed, %zu failed\n", passed_, failed_);
  return failed_ == 0 ? 0 : 3;
}

}  // namespace lathe::testing
