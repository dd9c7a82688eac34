#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lathe/ir/program.h"

namespace lathe {

/// What a model says about itself beside what it computes, by name: "producer_name",
/// "producer_version", "domain", "model_version", "doc_string", "graph.name", "graph.doc_string",
/// "value.NAME.doc_string" of inputs and outputs, "value.NAME.class_labels" of outputs whose
/// columns are classes (a JSON list), and "metadata_props.KEY", where exporters put class names and
/// character tables. An attribute of the program, sorted by name.
using Metadata = std::vector<std::pair<std::string, std::string>>;

Metadata MetadataOf(const Program& program);
/// Replaces all of it; of a name that is given twice the first value counts.
void SetMetadata(Program& program, const Metadata& metadata);

}  // namespace lathe
