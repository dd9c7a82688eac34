#include "lathe/pass/analysis.h"

#include <algorithm>

namespace lathe {

PreservedAnalyses PreservedAnalyses::All() {
  PreservedAnalyses all;
  all.all_ = true;
  return all;
}

bool PreservedAnalyses::Preserves(TypeId id) const {
  return all_ || std::find(kept_.begin(), kept_.end(), id) != kept_.end();
}

void AnalysisManager::Invalidate(const PreservedAnalyses& preserved) {
  std::erase_if(entries_, [&](const Entry& e) { return !preserved.Preserves(e.id); });
}

void* AnalysisManager::Find(TypeId id) const {
  for (const Entry& e : entries_) {
    if (e.id == id) return e.analysis.get();
  }
  return nullptr;
}

}  // namespace lathe
