#pragma once

namespace lathe {

class Pass;
class Program;

/// Each `cf.scan` whose body writes a mutable tensor of outside becomes a `cf.while` that takes the
/// slices itself: a loop can carry the tensor, a scan cannot.
void LoopsForWritingScans(Program& program, Pass* pass);

}  // namespace lathe
