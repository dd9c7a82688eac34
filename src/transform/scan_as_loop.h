#pragma once

#include <cstdint>

namespace lathe {

class Block;
class Pass;
class Program;

/// Each `cf.scan` whose body writes a mutable tensor of outside becomes a `cf.while` that takes the
/// slices itself: a loop can carry the tensor, a scan cannot.
void LoopsForWritingScans(Program& program, Pass* pass);

/// Each `cf.scan` of the block, and within it, becomes a `cf.while` if it is known where its pieces
/// go. Returns how many did.
int64_t LoopsForScans(Program& program, Block* block, Pass* pass);

}  // namespace lathe
