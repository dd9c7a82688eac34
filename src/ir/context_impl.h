#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lathe/ir/context.h"

namespace lathe {

struct IrContext::Impl {
  std::unordered_map<const void*, std::unique_ptr<AbstractKind>> kinds;
  std::deque<std::string> names;  ///< text that kinds and ops refer to
  std::vector<std::unique_ptr<Dialect>> dialects;
  std::vector<void*> plugins;

  mutable std::shared_mutex ops_mutex;
  std::unordered_map<std::string_view, OpInfoImpl*> ops;
  std::unordered_map<const void*, OpInfoImpl*> ops_by_id;

  std::mutex files_mutex;
  std::deque<std::string> files;
  std::unordered_map<std::string_view, uint32_t> file_ids;
};

/// Registers the builtin types and attributes with a new context.
void RegisterBuiltinKinds(IrContext& context);

}  // namespace lathe
