#pragma once

#include <regex>
#include <string>

#include "lathe/ir/context.h"
#include "lathe/ir/text_format.h"

namespace lathe {

/// The program, and its parameters, in f16 or bf16 in place of f32.
inline Program Narrow(const Program& program, ElementType element) {
  const std::string text = std::regex_replace(Print(program, {.file_locations = false}),
                                              std::regex("\\bf32\\b"), std::string(Name(element)));
  Program narrow = ParseProgram(program.context(), text, {.file_locations = false});
  for (const auto& [name, variable] : program.parameters()) {
    narrow.parameters().Set(name, {Cast(variable.data, element), false});
  }
  return narrow;
}

}  // namespace lathe
