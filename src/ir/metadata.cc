#include "lathe/ir/metadata.h"

#include <map>

#include "lathe/ir/context.h"

namespace lathe {
namespace {

constexpr const char* kMetadata = "metadata";

}  // namespace

Metadata MetadataOf(const Program& program) {
  Metadata metadata;
  const auto all = program.module()->attribute(kMetadata).dyn_cast<DictionaryAttribute>();
  if (!all) return metadata;
  for (const NamedAttribute& entry : all.entries()) {
    const auto value = entry.value.dyn_cast<StrAttribute>();
    if (value) metadata.emplace_back(entry.name.value(), value.value());
  }
  return metadata;
}

void SetMetadata(Program& program, const Metadata& metadata) {
  if (metadata.empty()) return program.module()->SetAttribute(kMetadata, Attribute());
  IrContext& context = program.context();
  const std::map<std::string, std::string> sorted(metadata.begin(), metadata.end());
  std::vector<NamedAttribute> entries;
  for (const auto& [name, value] : sorted) {
    entries.push_back({StrAttribute::Get(context, name), StrAttribute::Get(context, value)});
  }
  program.module()->SetAttribute(kMetadata, DictionaryAttribute::Get(context, entries));
}

}  // namespace lathe
