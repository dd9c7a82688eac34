#pragma once

#include <string>

#include "lathe/lower/lower_function.h"

/// One strategy, one file; each writes a body of loops or says why it can not.
namespace lathe::lower {

struct LoopStrategy {
  const char* name;
  /// Writes loops into `body`, whose arguments are those of the function, terminator included;
  /// false with the reason in `why` if the function is none of its kind. Nothing was written then.
  bool (*lower)(const Block& function, Block* body, const Machine& machine, std::string& why);
};

bool LowerElementwise(const Block& function, Block* body, const Machine& machine, std::string& why);
bool LowerConv(const Block& function, Block* body, const Machine& machine, std::string& why);
bool LowerMatmul(const Block& function, Block* body, const Machine& machine, std::string& why);

}  // namespace lathe::lower
