#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lathe/lower/lowering.h"

namespace lathe::lower {

/// An rnn, gru or lstm operation as loops see it.
struct RecurrentForm {
  enum class Kind : uint8_t { kRnn, kGru, kLstm };
  enum class Function : uint8_t { kSigmoid, kTanh, kRelu };

  /// Why the function is no such layer that can be lowered; empty if it is one.
  std::string Read(const Block& function);

  const Operation* op = nullptr;
  std::vector<size_t> results;  ///< of the operation that the function gives back, in its order
  Kind kind = Kind::kRnn;
  Value x, w, r, bias, lengths, state, cell, peepholes;  ///< null if absent
  Dim steps, batch;
  int64_t gates = 1, features = 0, hidden = 0, directions = 1;
  bool reverse = false;  ///< the first direction
  bool batch_first = false;
  bool couples = false;       ///< lstm: the forget gate is what the input gate leaves
  bool linear_first = false;  ///< gru: the state is multiplied before it is reset
  std::optional<double> clip;
  std::vector<Function> functions;  ///< as many for each direction

  bool IsResult(size_t result) const;
  bool Backwards(int64_t direction) const { return reverse || direction == 1; }
  /// The functions of a direction.
  const Function* FunctionsOf(int64_t direction) const {
    return functions.data() +
           static_cast<size_t>(direction) * functions.size() / static_cast<size_t>(directions);
  }

 private:
  std::string ReadOperation();
  std::string Misfit() const;
  std::string ReadFunctions(std::vector<std::string> defaults);
};

}  // namespace lathe::lower
