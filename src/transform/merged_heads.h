#pragma once

#include <initializer_list>
#include <string>

#include "lathe/pass/rule.h"

/// Attention whose batch and heads exporters merge into one dim for the products.
namespace lathe {

/// `name`, [B, H, rows, features], as `<name>_merged`, [B * H, rows, features].
Pat MergedHeads(const std::string& name);
/// Whether the dims are provably these.
bool HasDims(Value value, std::initializer_list<Dim> dims);
/// q, k and v have one batch and one number of heads, and are merged as MergedHeads says.
bool OperandsMergeHeads(const RuleMatch& m);

}  // namespace lathe
